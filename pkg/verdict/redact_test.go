package verdict_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oneboot/oneboot/pkg/verdict"
)

const planted = "h0rse-battery"

// secretArguments hold a secret each, in every form that the kernel reads.
var secretArguments = []string{
	"rd.luks.passphrase=" + planted, "coreos.inst.token=" + planted, `ks.password="` + planted + ` x"`, `"my-secret=` + planted + ` y"`,
	"coreos.live.rootfs_url=https://user:" + planted + "@example.com/rootfs", "coreos.inst.ignition_url=https://example.com/i?sig=" + planted,
	"netroot=iscsi:user:" + planted + "@192.0.2.1::3260::iqn.2024-01.example:disk", "root=iscsi:user:" + planted + ":in:" + planted + "@server::::iqn.x",
	"netroot=nbd:user:" + planted + "@server:root", "wifi.psk=" + planted, `api-key="` + planted, "proxy=http://u:" + planted + "@proxy:3128",
}

func drawSecretWorld(r *rapid.T) world {
	w := drawWorld(r, rapid.SampledFrom(proofs()).Draw(r, "proof"))
	words := rapid.SliceOf(rapid.SampledFrom(slices.Concat(secretArguments, []string{
		"quiet", "ip=dhcp", "rd.luks.passphrase=other", "coreos.inst.token=" + planted + "2", `a="b c"`, "--", `b="c`, "wifi.psk=",
	})))
	line := func(label string) string { return "root=UUID=1 " + strings.Join(words.Draw(r, label), " ") }
	w.b.BootEntryOptions, w.b.CommandLine = verdict.Known(line("entry")), verdict.Known(line("cmdline"))
	w.b.LegacyKernelArguments = verdict.Known([]string{"ADD " + line("legacy")})
	if rapid.Bool().Draw(r, "no legacy file") {
		w.b.LegacyKernelArguments = verdict.Known([]string(nil))
	}
	change(&w.t.MachineConfig, func(m *verdict.MachineConfig) { m.KernelArguments = words.Draw(r, "wanted") })
	if rapid.Bool().Draw(r, "all there") {
		mc, _ := w.t.MachineConfig.Get()
		w.b.BootEntryOptions = verdict.Known("rw " + strings.Join(mc.KernelArguments, " "))
		w.b.CommandLine = w.b.BootEntryOptions
	}
	return w
}

func verdictJSON(r *rapid.T, b verdict.Booted, t verdict.Target) string {
	out, err := json.Marshal(verdict.Decide(b, t, verdict.Policy{Full: true}))
	if err != nil {
		r.Fatal(err)
	}
	return string(out)
}

func TestVerdictShowsNoSecrets(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawSecretWorld(r)
		if v := verdictJSON(r, w.b, w.t); strings.Contains(v, planted) {
			r.Fatal(v)
		}
	})
}

// Facts without their secrets give the same verdict to the byte.
func TestRedactedFactsDecideTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := drawSecretWorld(r)
		want := verdictJSON(r, w.b, w.t)
		var redactor verdict.Redactor
		b, target := redactor.Facts(w.b, w.t)
		if got := verdictJSON(r, b, target); got != want {
			r.Fatalf("got  %s\nwant %s", got, want)
		}
		for _, f := range []verdict.Fact[string]{b.BootEntryOptions, b.CommandLine} {
			if line, _ := f.Get(); strings.Contains(line, planted) {
				r.Fatal(line)
			}
		}
		mc, _ := target.MachineConfig.Get()
		if strings.Contains(strings.Join(mc.KernelArguments, " "), planted) {
			r.Fatal(mc.KernelArguments)
		}
	})
}
