package verdict

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// What rpm's own test suite (tests/rpmvercmp.at) holds, and the versions that
// are compared here.
var versionPairs = []struct {
	a, b string
	want int
}{
	{"1.0", "1.0", 0}, {"1.0", "2.0", -1}, {"2.0.1", "2.0.1", 0}, {"2.0", "2.0.1", -1},
	{"2.0.1a", "2.0.1a", 0}, {"2.0.1a", "2.0.1", 1}, {"5.5p1", "5.5p1", 0}, {"5.5p1", "5.5p2", -1},
	{"5.5p10", "5.5p10", 0}, {"5.5p1", "5.5p10", -1}, {"10xyz", "10.1xyz", -1}, {"xyz10", "xyz10", 0},
	{"xyz10", "xyz10.1", -1}, {"xyz.4", "xyz.4", 0}, {"xyz.4", "8", -1}, {"xyz.4", "2", -1},
	{"5.5p2", "5.6p1", -1}, {"5.6p1", "6.5p1", -1}, {"6.0.rc1", "6.0", 1}, {"10b2", "10a1", 1},
	{"1.0a", "1.0aa", -1}, {"10.0001", "10.0001", 0}, {"10.0001", "10.1", 0}, {"10.0001", "10.0039", -1},
	{"4.999.9", "5.0", -1}, {"20101121", "20101122", -1}, {"2_0", "2_0", 0}, {"2.0", "2_0", 0},
	{"a", "a", 0}, {"a+", "a+", 0}, {"a+", "a_", 0}, {"+a", "+a", 0}, {"+a", "_a", 0}, {"+_", "+_", 0}, {"_+", "+_", 0}, {"+", "_", 0},
	{"1.0~rc1", "1.0~rc1", 0}, {"1.0~rc1", "1.0", -1}, {"1.0~rc1", "1.0~rc2", -1}, {"1.0~rc1~git123", "1.0~rc1", -1},
	{"1.0^", "1.0^", 0}, {"1.0^", "1.0", 1}, {"1.0^git1", "1.0^git1", 0}, {"1.0^git1", "1.0", 1}, {"1.0^git1", "1.0^git2", -1},
	{"1.0^git1", "1.01", -1}, {"1.0^20160101", "1.0^20160101", 0}, {"1.0^20160101", "1.0.1", -1}, {"1.0^20160101^git1", "1.0^20160102", -1},
	{"1.0~rc1^git1", "1.0~rc1^git1", 0}, {"1.0~rc1^git1", "1.0~rc1", 1}, {"1.0~rc1^git1", "1.0", -1},
	{"1.0^git1~pre", "1.0^git1~pre", 0}, {"1.0^git1", "1.0^git1~pre", 1},
	{"1b.fc17", "1b.fc17", 0}, {"1b.fc17", "1.fc17", -1}, {"1g.fc17", "1.fc17", 1}, {"1.1.α", "1.1.β", 0},
	{"", "", 0}, {"", "1", -1}, {"", "~", 1}, {"^", "", 1}, {"1.", "1", 0}, {"000", "0", 0},
	{"1.22.2", "1.22.1", 1}, {"1.9.3", "1.22.2", -1}, {"1.22.2~rc1", "1.22.2", -1}, {"1.23.0~rc1", "1.22.2", 1},
	{"2022.9", "2022.13", -1}, {"2022.10.112.g3d0ac35b", "2022.13", -1}, {"2022.10.112.g3d0ac35b", "2022.10.91", 1}, {"2022.10.90.g4abaf4b4", "2022.10.91", -1},
}

func TestCompareVersions(t *testing.T) {
	for _, tt := range versionPairs {
		if got := compareVersions(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := compareVersions(tt.b, tt.a); got != -tt.want {
			t.Errorf("%q and %q: got %d, want %d", tt.b, tt.a, got, -tt.want)
		}
	}
}

// The installed rpm compares in the same way: the pairs of the table, and
// random ones of all that has a meaning.
func TestCompareVersionsAsRPM(t *testing.T) {
	const seed = 20221013
	random := rand.New(rand.NewPCG(seed, seed))
	draw := func() string {
		var s strings.Builder
		for range 1 + random.IntN(8) {
			const signs = "0019abZ.~^+_"
			s.WriteByte(signs[random.IntN(len(signs))])
		}
		return s.String()
	}
	var pairs [][2]string
	for _, tt := range versionPairs {
		if tt.a != "" && tt.b != "" { // rpm takes none for no version
			pairs = append(pairs, [2]string{tt.a, tt.b})
		}
	}
	for range 3000 {
		pairs = append(pairs, [2]string{draw(), draw()})
	}
	// One print only: rpm 4.18 has corrupted its memory over some thousand.
	var script strings.Builder
	script.WriteString("local t = {}\n")
	for _, p := range pairs {
		fmt.Fprintf(&script, "t[#t+1] = rpm.vercmp(%q, %q)\n", p[0], p[1])
	}
	script.WriteString("print(table.concat(t, ' '))")
	cmd := exec.CommandContext(t.Context(), "rpm", "--eval", "%{lua: "+script.String()+"}")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	if len(got) != len(pairs) {
		t.Fatalf("rpm answered %d of %d pairs: %.200s", len(got), len(pairs), out)
	}
	for i, p := range pairs {
		if c := compareVersions(p[0], p[1]); fmt.Sprint(c) != got[i] {
			t.Errorf("%q and %q: got %d, rpm says %s", p[0], p[1], c, got[i])
		}
	}
}

func FuzzCompareVersions(f *testing.F) {
	for _, tt := range versionPairs {
		f.Add(tt.a, tt.b)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if compareVersions(a, a) != 0 {
			t.Errorf("%q is not itself", a)
		}
		if x, y := compareVersions(a, b), compareVersions(b, a); x != -y {
			t.Errorf("%q and %q: %d and %d", a, b, x, y)
		}
		if v := upstreamVersion(a); strings.Contains(v, "-") {
			t.Errorf("the version within %q is %q", a, v)
		}
		numericParts(a, 2, true)
	})
}
