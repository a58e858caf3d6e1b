package clustermanifests

import (
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// A policy is one of admission, as the API server evaluates it: the conditions say
// whether it is asked, the validations what it says.
type policy struct {
	t   *testing.T
	env *cel.Env
	admissionv1.ValidatingAdmissionPolicy
}

func newPolicy(t *testing.T, overlay, name string) policy {
	t.Helper()
	p := policy{t: t}
	strict(t, find(t, render(t, overlay), "ValidatingAdmissionPolicy", name), &p.ValidatingAdmissionPolicy)
	var err error
	p.env, err = cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p policy) value(expression string, in map[string]any) any {
	p.t.Helper()
	ast, issues := p.env.Compile(expression)
	if issues.Err() != nil {
		p.t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := p.env.Program(ast)
	if err != nil {
		p.t.Fatal(err)
	}
	v, _, err := program.Eval(in)
	if err != nil {
		return err // an error is a refusal: failurePolicy is Fail
	}
	return v.Value()
}

// decide is whether the policy is asked about a request, and what it says.
func (p policy) decide(request, before, after any) (asked, allowed bool) {
	p.t.Helper()
	in := map[string]any{"request": request, "oldObject": before, "object": after, "variables": map[string]any{}}
	for _, c := range p.Spec.MatchConditions {
		if p.value(c.Expression, in) != true {
			return false, true
		}
	}
	variables := map[string]any{}
	for _, v := range p.Spec.Variables {
		variables[v.Name] = p.value(v.Expression, in)
	}
	in["variables"] = variables
	for _, v := range p.Spec.Validations {
		if p.value(v.Expression, in) != true {
			return true, false
		}
	}
	return true, true
}

type object = map[string]any

func TestAdmissionOfNodes(t *testing.T) {
	node := func(meta object) object {
		all := object{"name": "n", "labels": object{"a": "b"}, "annotations": object{"example.com/a": "b", "oneboot.dev/boot": "x"}}
		for k, v := range meta {
			all[k] = v
		}
		return object{"metadata": all, "spec": object{}}
	}
	annotated := func(k, v string) object {
		return node(object{"annotations": object{"example.com/a": "b", "oneboot.dev/boot": "x", k: v}})
	}
	tests := []struct {
		name    string
		account string
		after   object
		asked   bool
		allowed bool
	}{
		{"its own annotation", "oneboot:oneboot-node", annotated("oneboot.dev/pivot", "done"), true, true},
		{"nothing", "oneboot:oneboot-node", node(nil), true, true},
		{"another annotation", "oneboot:oneboot-node", annotated("example.com/b", "c"), true, false},
		{"another annotation without a value", "oneboot:oneboot-node", annotated("machine.openshift.io/exclude-node-draining", ""), true, false},
		{"another value", "oneboot:oneboot-node", annotated("example.com/a", "c"), true, false},
		{"emptying one", "oneboot:oneboot-node", annotated("example.com/a", ""), true, false},
		{"taking one away", "oneboot:oneboot-node", node(object{"annotations": object{}}), true, false},
		{"a name that begins alike", "oneboot:oneboot-node", annotated("oneboot.dev.example.com/a", "b"), true, false},
		{"a label", "oneboot:oneboot-node", node(object{"labels": object{"a": "b", "c": ""}}), true, false},
		{"no labels", "oneboot:oneboot-node", node(object{"labels": object{}}), true, false},
		{"a finalizer", "oneboot:oneboot-node", node(object{"finalizers": []any{"a/b"}}), true, false},
		{"installed into another namespace", "elsewhere:oneboot-node", annotated("example.com/b", "c"), true, false},
		{"somebody else", "oneboot:other", annotated("example.com/b", "c"), false, true},
	}
	for _, overlay := range []string{"openshift", "kubernetes", "base"} {
		p := newPolicy(t, overlay, "oneboot-node")
		for _, tt := range tests {
			t.Run(overlay+"/"+tt.name, func(t *testing.T) {
				request := object{"operation": "UPDATE", "userInfo": object{"username": "system:serviceaccount:" + tt.account,
					"extra": object{"authentication.kubernetes.io/node-name": []any{"n"}}}}
				if asked, allowed := p.decide(request, node(nil), tt.after); asked != tt.asked || allowed != tt.allowed {
					t.Errorf("asked %v, allowed %v; want %v, %v", asked, allowed, tt.asked, tt.allowed)
				}
				if tt.asked {
					request["userInfo"].(object)["extra"] = object{}
					if _, allowed := p.decide(request, node(nil), tt.after); allowed {
						t.Error("allowed with a token of no node")
					}
				}
			})
		}
	}
}
