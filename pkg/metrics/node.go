package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oneboot/oneboot/pkg/record"
)

// A RecordState says whether a node has a record.
type RecordState string

const (
	// RecordRead: the record was read.
	RecordRead RecordState = "read"
	// RecordNone: the node has none. oneboot did not run on its first boot, or
	// the node is older than oneboot in its pool.
	RecordNone RecordState = "none"
	// RecordUnreadable: there is one, and it cannot be read or is damaged.
	RecordUnreadable RecordState = "unreadable"
)

func recordStates() []string {
	return []string{string(RecordRead), string(RecordNone), string(RecordUnreadable)}
}

// A PivotState says whether the node's first pivot was skipped: whether it joined
// in the very boot in which oneboot decided.
type PivotState string

const (
	// PivotSkipped: the node joined in the boot of the decision.
	PivotSkipped PivotState = "skipped"
	// PivotDone: the node booted again between the decision and its join.
	PivotDone PivotState = "done"
	// PivotUnknown: nothing that is left tells the one from the other.
	PivotUnknown PivotState = "unknown"
)

func pivotStates() []string {
	return []string{string(PivotSkipped), string(PivotDone), string(PivotUnknown)}
}

// A HoldState says whether a skip that was acted upon is still right.
type HoldState string

const (
	// HoldNone: no skip was acted upon.
	HoldNone HoldState = "none"
	// HoldYes: the booted content and the pull spec of the node's current
	// MachineConfig are those of the proof.
	HoldYes HoldState = "yes"
	// HoldNo: they are not, and no update explains it. The node may be on
	// another OS than its MachineConfig says.
	HoldNo HoldState = "no"
	// HoldSuperseded: the node runs another OS than it booted first, and its
	// MachineConfig names another image: it was updated since.
	HoldSuperseded HoldState = "superseded"
	// HoldUnknown: one of the two cannot be read.
	HoldUnknown HoldState = "unknown"
)

func holdStates() []string {
	return []string{string(HoldNone), string(HoldYes), string(HoldNo), string(HoldSuperseded), string(HoldUnknown)}
}

func actStates() []string {
	return []string{string(record.ActNone), string(record.ActStarted), string(record.ActDone), string(record.ActUndone), string(record.ActFailed)}
}

// A Node is what is known of one node's first boot at one moment. It is not
// changed once it was handed over.
type Node struct {
	// Pool is the node's MachineConfigPool, NodePool or role; empty where it is
	// not known.
	Pool string
	// State says whether Record is there.
	State RecordState
	// Record is nil unless State is RecordRead.
	Record *record.Record
	Pivot  PivotState
	Hold   HoldState
	// JoinSeconds is the time from the decision to the creation of the Node
	// object, in seconds; negative where it is not known.
	JoinSeconds float64
}

// A NodeCollector gives the metrics of one node. The zero NodeCollector gives
// none until the first snapshot. It is safe for use by several goroutines.
type NodeCollector struct{ now atomic.Pointer[Node] }

var _ prometheus.Collector = (*NodeCollector)(nil)

// Set takes the place of what was known before.
func (c *NodeCollector) Set(n Node) { c.now.Store(&n) }

// Describe sends every description, also of metrics that a node does not have.
func (c *NodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range nodeDescriptions() {
		ch <- d
	}
}

// The metrics of a node. A state is one of a few, and the series of the one
// that it is has the value 1.
var (
	nodeInfo = prometheus.NewDesc("oneboot_node_info",
		"The pool of the node, for joins; always 1.", []string{"pool"}, nil)
	recordState = prometheus.NewDesc("oneboot_firstboot_record_state",
		"1 for the state of the record of the first boot: read, none or unreadable.", []string{"state"}, nil)
	decisionInfo = prometheus.NewDesc("oneboot_firstboot_decision_info",
		"What was decided on the first boot, by which proof and in which mode; always 1.", []string{"action", "reason", "proof", "mode", "version"}, nil)
	conclusive = prometheus.NewDesc("oneboot_firstboot_conclusive",
		"1 where the decision rests on what is known, 0 where something unknown decided it.", nil, nil)
	actState = prometheus.NewDesc("oneboot_firstboot_act_state",
		"1 for what became of the act upon the decision: none, started, done, undone or failed.", []string{"state"}, nil)
	decided = prometheus.NewDesc("oneboot_firstboot_decision_timestamp_seconds",
		"When the first boot was decided upon, by the node's clock, in seconds since the epoch.", nil, nil)
	analysis = prometheus.NewDesc("oneboot_firstboot_analysis_seconds",
		"How long the analysis took.", nil, nil)
	requests = prometheus.NewDesc("oneboot_firstboot_registry_requests",
		"HTTP requests that the analysis made to registries.", nil, nil)
	bytesRead = prometheus.NewDesc("oneboot_firstboot_registry_bytes",
		"Bytes of bodies that the analysis read from registries.", nil, nil)
	pivotState = prometheus.NewDesc("oneboot_firstboot_pivot_state",
		"1 for what became of the first pivot: skipped (the node joined in the boot of the decision), done or unknown.", []string{"state"}, nil)
	holdState = prometheus.NewDesc("oneboot_firstboot_skip_holds_state",
		"1 for whether a skip that was acted upon is still right: yes, no, superseded by an update, unknown, or none.", []string{"state"}, nil)
	joinTime = prometheus.NewDesc("oneboot_firstboot_join_seconds",
		"Time from the decision to the creation of the Node object.", nil, nil)
)

func nodeDescriptions() []*prometheus.Desc {
	return []*prometheus.Desc{nodeInfo, recordState, decisionInfo, conclusive, actState, decided, analysis, requests, bytesRead, pivotState, holdState, joinTime}
}

// Collect sends what the last snapshot says.
func (c *NodeCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.now.Load()
	if n == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	states := func(d *prometheus.Desc, all []string, is string) {
		for _, s := range all {
			gauge(d, number(s == is), s)
		}
	}
	gauge(nodeInfo, 1, n.Pool)
	states(recordState, recordStates(), string(n.State))
	if n.State != RecordRead || n.Record == nil {
		return
	}
	r, v := n.Record, n.Record.Verdict
	gauge(decisionInfo, 1, v.Action.String(), label(string(v.Reason)), label(string(v.Proof)), label(r.Mode), label(r.Version))
	gauge(conclusive, number(v.Conclusive))
	act := record.ActNone
	if r.Act != nil {
		act = r.Act.State
	}
	states(actState, actStates(), string(act))
	gauge(decided, float64(r.Time.UnixMilli())/1000)
	gauge(analysis, r.Seconds)
	gauge(requests, float64(r.Registry.Requests))
	gauge(bytesRead, float64(r.Registry.Bytes))
	states(pivotState, pivotStates(), string(n.Pivot))
	states(holdState, holdStates(), string(n.Hold))
	if n.JoinSeconds >= 0 {
		gauge(joinTime, n.JoinSeconds)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maxLabel bounds a label's value, in bytes: a record is a file on a node, and
// its words are few and short.
const maxLabel = 64

// label is a word of a record as a label's value: what is no such word is
// "invalid", so that no damaged record makes a series of its own.
func label(s string) string {
	if len(s) > maxLabel {
		return "invalid"
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '+' && c != '_' {
			return "invalid"
		}
	}
	return s
}
