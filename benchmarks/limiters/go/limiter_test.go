// Package limiters puts failsafe-go's adaptive limiter before the servers of world.py: a trace of (arrival, service) in,
// what became of each request out. A test, because only tests have a clock that can be let run: an hour takes seconds.
package limiters

import (
	"container/heap"
	"encoding/binary"
	"math"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

type running struct {
	ends   float64
	permit adaptivelimiter.Permit
}

type queue []running

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].ends < q[j].ends }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(one any)      { *q = append(*q, one.(running)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// TestTrace reads TRACE and writes OUTCOME: little-endian doubles, pairs of seconds, and pairs of (latency in seconds, or
// -1 where it was rejected; the limit then). SERVERS work at once, and at most MOST requests are let in.
func TestTrace(t *testing.T) {
	trace, err := os.ReadFile(os.Getenv("TRACE"))
	if err != nil {
		t.Skip("there is no trace: ", err)
	}
	servers, most := number(t, "SERVERS"), number(t, "MOST")
	outcome := make([]byte, 0, len(trace))
	synctest.Test(t, func(t *testing.T) {
		limiter := adaptivelimiter.NewBuilder[any]().WithLimits(1, uint(most), 20).Build()
		began, free, inFlight := time.Now(), make([]float64, servers), &queue{}
		until := func(at float64) {
			if wait := time.Duration(at*float64(time.Second)) - time.Since(began); wait > 0 {
				time.Sleep(wait)
			}
		}
		for at := 0; at < len(trace); at += 16 {
			now, service := double(trace[at:]), double(trace[at+8:])
			for inFlight.Len() > 0 && (*inFlight)[0].ends <= now {
				done := heap.Pop(inFlight).(running)
				until(done.ends)
				done.permit.Record()
			}
			until(now)
			latency := -1.0
			if permit, ok := limiter.TryAcquirePermit(); ok {
				first := 0
				for server := range free {
					if free[server] < free[first] {
						first = server
					}
				}
				free[first] = math.Max(now, free[first]) + service
				latency = free[first] - now
				heap.Push(inFlight, running{free[first], permit})
			}
			outcome = binary.LittleEndian.AppendUint64(outcome, math.Float64bits(latency))
			outcome = binary.LittleEndian.AppendUint64(outcome, math.Float64bits(float64(limiter.Limit())))
		}
		for inFlight.Len() > 0 {
			heap.Pop(inFlight).(running).permit.Drop()
		}
	})
	if err := os.WriteFile(os.Getenv("OUTCOME"), outcome, 0o600); err != nil {
		t.Fatal(err)
	}
}

func double(bytes []byte) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(bytes))
}

func number(t *testing.T, name string) int {
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		t.Fatal(name, " is no number: ", err)
	}
	return value
}
