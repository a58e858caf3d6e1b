package verdict_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/oneboot/oneboot/pkg/verdict"
)

func TestParseKernelArguments(t *testing.T) {
	arg := func(k, v string) verdict.KernelArgument {
		return verdict.KernelArgument{Key: k, Value: v, HasValue: true}
	}
	bare := func(k string) verdict.KernelArgument { return verdict.KernelArgument{Key: k} }
	tests := []struct {
		name, line string
		want       []verdict.KernelArgument
	}{
		{"empty", "  \t\n", nil},
		{"plain", "quiet a=1", []verdict.KernelArgument{bare("quiet"), arg("a", "1")}},
		{"empty value", "a=", []verdict.KernelArgument{arg("a", "")}},
		{"value with =", "root=UUID=1", []verdict.KernelArgument{arg("root", "UUID=1")}},
		{"quoted value", `a="b c" d`, []verdict.KernelArgument{arg("a", "b c"), bare("d")}},
		{"quoted whole", `"a=b c" d`, []verdict.KernelArgument{arg("a", "b c"), bare("d")}},
		{"quote inside value stays", `a=b"c d"e`, []verdict.KernelArgument{arg("a", `b"c d"e`)}},
		{"unterminated", `a="b c`, []verdict.KernelArgument{arg("a", "b c")}},
		{"leading =", "=a", []verdict.KernelArgument{bare("=a")}},
		{"for init", "a -- b", []verdict.KernelArgument{bare("a")}},
		{"newline ends a word", "a=1\nb=2\n", []verdict.KernelArgument{arg("a", "1"), arg("b", "2")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(verdict.ParseKernelArguments(tt.line), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestKernelArgumentsCheck(t *testing.T) {
	const sameLine = "\x00" // /proc/cmdline is as the boot entry
	tests := []struct {
		name    string
		entry   string
		cmdline string
		wanted  []string
		want    verdict.Outcome
	}{
		{"none wanted", "rw", sameLine, nil, verdict.OutcomeSame},
		{"white space only", "rw", sameLine, []string{"  "}, verdict.OutcomeSame},
		{"present", "rw nosmt", sameLine, []string{"nosmt"}, verdict.OutcomeSame},
		{"missing", "rw", sameLine, []string{"nosmt"}, verdict.OutcomeDiffers},
		{"only in cmdline", "rw", "rw nosmt", []string{"nosmt"}, verdict.OutcomeDiffers},
		{"only in entry", "rw nosmt", "rw", []string{"nosmt"}, verdict.OutcomeDiffers},
		{"other value", "a=1", sameLine, []string{"a=2"}, verdict.OutcomeDiffers},
		{"order of free keys", "b=2 rw a=1", sameLine, []string{"a=1", "b=2"}, verdict.OutcomeSame},
		{"order of consoles", "console=tty0 console=ttyS0", sameLine, []string{"console=ttyS0", "console=tty0"}, verdict.OutcomeDiffers},
		{"last console moves behind another", "console=tty0 console=ttyS0", sameLine, []string{"console=tty0"}, verdict.OutcomeDiffers},
		{"last console stays last", "console=tty0 rw console=ttyS0", sameLine, []string{"console=ttyS0"}, verdict.OutcomeSame},
		{"huge pages keep their sizes", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", sameLine,
			[]string{"hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=6"}, verdict.OutcomeSame},
		{"huge pages of another size", "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6", sameLine,
			[]string{"hugepagesz=2M", "hugepages=6", "hugepagesz=1G", "hugepages=4"}, verdict.OutcomeDiffers},
		{"dracut order", "ip=dhcp rd.neednet=1", sameLine, []string{"ip=dhcp"}, verdict.OutcomeDiffers},
		{"wanted twice, there once", "a=1", sameLine, []string{"a=1", "a=1"}, verdict.OutcomeDiffers},
		{"wanted once, there twice", "a=1 a=1", sameLine, []string{"a=1"}, verdict.OutcomeDiffers},
		{"wanted twice, there twice", "a=1 a=1", sameLine, []string{"a=1", "a=1"}, verdict.OutcomeSame},
		{"two in one entry", "a=1 b=2", sameLine, []string{"a=1 b=2"}, verdict.OutcomeSame},
		{"quotes dropped by the boot loader", `rw cgroup_no_v1="all" psi=1`, "rw cgroup_no_v1=all psi=1", []string{`cgroup_no_v1="all"`, "psi=1"}, verdict.OutcomeSame},
		{"quoted value with a space", `dyndbg="file x +p"`, sameLine, []string{`dyndbg="file x +p"`}, verdict.OutcomeSame},
		{"quoted value cut apart", `dyndbg=file x +p`, sameLine, []string{`dyndbg="file x +p"`}, verdict.OutcomeDiffers},
		{"behind --", "rw -- nosmt", sameLine, []string{"nosmt"}, verdict.OutcomeDiffers},
		{"before --", "nosmt -- rw", sameLine, []string{"nosmt"}, verdict.OutcomeDiffers},
		{"swallowed by an open quote", `nosmt a="b`, sameLine, []string{"nosmt"}, verdict.OutcomeDiffers},
		{"dash and underscore are one letter", "foo-bar=1 foo_bar=2", sameLine, []string{"foo-bar=1"}, verdict.OutcomeDiffers},
		{"the last of ro and rw", "rw ro", sameLine, []string{"rw"}, verdict.OutcomeDiffers},
		{"quiet after a log level", "loglevel=7 quiet", sameLine, []string{"loglevel=7"}, verdict.OutcomeDiffers},
		{"prefix is no match", "nosmt=force", sameLine, []string{"nosmt"}, verdict.OutcomeDiffers},
		{"bare key is not an empty value", "quiet=", sameLine, []string{"quiet"}, verdict.OutcomeDiffers},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmdline := tt.cmdline
			if cmdline == sameLine {
				cmdline = tt.entry
			}
			v := verdict.Decide(verdict.Booted{BootEntryOptions: verdict.Known(tt.entry), CommandLine: verdict.Known(cmdline)},
				verdict.Target{MachineConfig: verdict.Known(verdict.MachineConfig{KernelArguments: tt.wanted})}, verdict.Policy{})
			for _, c := range v.Checks {
				if c.Name == verdict.CheckKernelArguments && c.Outcome != tt.want {
					t.Errorf("got %v, want %v: %s", c.Outcome, tt.want, c.Detail)
				}
			}
		})
	}
}

// Whatever the lines hold, parsing ends and no word is made up.
func FuzzKernelArguments(f *testing.F) {
	for _, s := range []string{"", "a=1 b", `a="b c" -- d`, `"a=b`, "=\"=", "a\xa0b"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, line, wanted string) {
		words := verdict.SplitKernelArguments(line)
		if total := len(strings.Join(words, "")); total > len(line) {
			t.Errorf("%d bytes of words from %d bytes", total, len(line))
		}
		v := verdict.Decide(verdict.Booted{BootEntryOptions: verdict.Known(line), CommandLine: verdict.Known(line),
			LegacyKernelArguments: verdict.Known([]string{wanted})},
			verdict.Target{MachineConfig: verdict.Known(verdict.MachineConfig{KernelArguments: []string{wanted}})}, verdict.Policy{})
		if v.Action != verdict.Proceed {
			t.Error("kernel arguments alone made a skip")
		}
	})
}
