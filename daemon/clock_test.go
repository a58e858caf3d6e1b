package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitFor(t *testing.T) {
	const most, poll = 15 * time.Second, 250 * time.Millisecond
	tests := []struct {
		name string
		// syncedAfter is when the clock becomes right; negative is never.
		syncedAfter time.Duration
		err         error
		cancelAfter time.Duration
		want        bool
		took        time.Duration
	}{
		{"already right", 0, nil, 0, true, 0},
		{"right after a while", 3 * time.Second, nil, 0, true, 3 * time.Second},
		{"right between two looks", 3100 * time.Millisecond, nil, 0, true, 3250 * time.Millisecond},
		{"never", -1, nil, 0, false, most},
		{"cannot tell", -1, errors.New("forbidden"), 0, false, 0},
		{"stopped", -1, nil, 2 * time.Second, false, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancelAfter > 0 {
					time.AfterFunc(tt.cancelAfter, cancel)
				}
				start := time.Now()
				got := waitFor(ctx, most, poll, func() (bool, error) {
					return tt.err == nil && tt.syncedAfter >= 0 && time.Since(start) >= tt.syncedAfter, tt.err
				})
				if took := time.Since(start); got != tt.want || took != tt.took {
					t.Errorf("got %v after %s, want %v after %s", got, took, tt.want, tt.took)
				}
			})
		})
	}
}

// The kernel answers, whatever it says, and the wait ends in time.
func TestWaitForClock(t *testing.T) {
	synced, err := clockSynchronized()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got := WaitForClock(t.Context(), 300*time.Millisecond)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if synced && !got {
		t.Errorf("the clock was synchronized and is not")
	}
}
