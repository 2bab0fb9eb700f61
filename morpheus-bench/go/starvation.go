// The Go side of the benchmark `starvation`: the same hogs, sleepers, busy tasks and echo server, with
// goroutines and GOMAXPROCS = workers.
//
// The measurement, and how it differs from the Rust side:
//   - Timers: goroutines sleep until absolute times with time.Sleep; each missed period is a sample.
//   - Wakes: pairs of CLOCK_MONOTONIC times come on standard input, written by a thread of another
//     process; a goroutine reads them through the network poller. Nothing else can wake a goroutine
//     from outside of Go's scheduler.
//   - A computing hog does a number of iterations, calibrated at the start to be hog-ms of CPU time of a
//     thread: a goroutine may change its thread in the middle, so it cannot look at a thread's clock.
//     Its CPU time is iterations done times the calibrated cost.
//   - sleep and read are raw system calls, which block the thread as they would in Rust. mutex is
//     sync.Mutex, held by another goroutine: Go has no other.
//
// Prints {"port":N} when ready, then, when its input ends, one line with all samples in nanoseconds.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var (
	workers   = flag.Int("workers", 2, "GOMAXPROCS")
	tasks     = flag.Int("tasks", 32, "sleepers")
	periodUs  = flag.Int64("period-us", 1000, "period of the sleepers")
	hogs      = flag.Int("hogs", 2, "hogs")
	hogMs     = flag.Float64("hog-ms", 200, "how long a hog stalls at a time")
	hogKind   = flag.String("hog-kind", "cpu", "cpu, sleep, mutex or read")
	fresh     = flag.Bool("fresh", false, "a new goroutine for each time")
	busy      = flag.Int("busy", 0, "goroutines that compute and yield for ever")
	busyUs    = flag.Float64("busy-us", 20, "for how long at a time")
	echo      = flag.Bool("echo", false, "serve echo")
	requestUs = flag.Float64("request-us", 20, "work per request")
	drainMs   = flag.Int64("drain-ms", 5000, "how long hogs may take to end")
)

const (
	message = 64    // bytes of a request, load::MESSAGE
	chunk   = 5_000 // iterations between two looks at the clock, as on the Rust side
)

//go:noinline
func compute(iterations int64) uint64 {
	x := uint64(0x9E3779B97F4A7C15)
	for i := int64(0); i < iterations; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

var sink atomic.Uint64

func work(iterations int64) { sink.Store(compute(iterations)) }

func clock(id uintptr) int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// The monotonic clock of all processes, read once; time.Since adds to it without a system call.
var (
	epoch   = time.Now()
	epochNs = clock(1)
)

func now() int64 { return epochNs + int64(time.Since(epoch)) }

// perUs is how many iterations take a microsecond of a thread's CPU time: the fastest of several tries.
func perUs() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const iterations = 200_000
	best := int64(math.MaxInt64)
	for i := 0; i < 20; i++ {
		start := clock(3) // CLOCK_THREAD_CPUTIME_ID
		work(iterations)
		if took := clock(3) - start; took > 0 && took < best {
			best = took
		}
	}
	return iterations / (float64(best) / 1e3)
}

type hog struct {
	polls, iterations atomic.Int64
	mutex             [2]sync.Mutex
	pipe              [2]int
	release           chan time.Duration
	turn              int
	_                 [64]byte
}

// prepare starts what lets a blocked hog go on.
func (h *hog) prepare() {
	switch *hogKind {
	case "mutex":
		// Two locks in turn, so that the holder never races with the hog for one that it gave away.
		h.mutex[0].Lock()
		h.mutex[1].Lock()
		h.release = make(chan time.Duration, 1)
		go func() {
			for turn := 0; ; turn++ {
				time.Sleep(<-h.release)
				if turn > 0 {
					h.mutex[(turn+1)%2].Lock()
				}
				h.mutex[turn%2].Unlock()
			}
		}()
	case "read":
		if syscall.Pipe(h.pipe[:]) != nil {
			panic("no pipe")
		}
		h.release = make(chan time.Duration, 1)
		go func() {
			for d := range h.release {
				time.Sleep(d)
				syscall.Write(h.pipe[1], []byte{0})
			}
		}()
	}
}

func (h *hog) stick(iterations int64) {
	d := time.Duration(*hogMs * 1e6)
	switch *hogKind {
	case "cpu":
		for done := int64(0); done < iterations; done += chunk {
			work(chunk)
			h.iterations.Add(chunk)
		}
	case "sleep":
		t := syscall.NsecToTimespec(int64(d))
		for syscall.Nanosleep(&t, &t) == syscall.EINTR {
		}
	case "mutex":
		h.release <- d
		h.mutex[h.turn%2].Lock()
		h.mutex[h.turn%2].Unlock()
		h.turn++
	case "read":
		h.release <- d
		var b [1]byte
		for {
			if _, err := syscall.Read(h.pipe[0], b[:]); err != syscall.EINTR {
				break
			}
		}
	}
	h.polls.Add(1)
}

type sleeper struct {
	sync.Mutex
	late   []int64
	due    int64
	closed bool
}

// run counts, whenever it wakes up, every time that it has missed.
func (s *sleeper) run(period int64) {
	for {
		s.Lock()
		due, closed := s.due, s.closed
		s.Unlock()
		if closed {
			return
		}
		time.Sleep(time.Duration(due - now()))
		s.Lock()
		from := windowFrom.Load()
		for at := now(); s.due <= at; s.due += period {
			if !s.closed && from != 0 && s.due >= from {
				s.late = append(s.late, at-s.due)
			}
		}
		s.Unlock()
	}
}

// close returns the samples, and the ages of the times that have not come.
func (s *sleeper) close(end, period int64) (late, pending []int64) {
	s.Lock()
	defer s.Unlock()
	s.closed = true
	for due := s.due; due < end; due += period {
		if due >= windowFrom.Load() {
			pending = append(pending, end-due)
		}
	}
	return s.late, pending
}

// windowFrom is when the window begins, 0 as long as that is not known.
var windowFrom atomic.Int64

func serveEcho(iterations int64) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := listener.Accept() // TCP_NODELAY is Go's default
			if err != nil {
				return
			}
			go func() {
				var b [message]byte
				for {
					if _, err := io.ReadFull(conn, b[:]); err != nil {
						return
					}
					work(iterations)
					if _, err := conn.Write(b[:]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

type reading struct{ at, polls, iterations, busy int64 }

type figures struct {
	Served       int     `json:"served"`
	Wake         []int64 `json:"wake"`
	Intended     []int64 `json:"intended"`
	Timer        []int64 `json:"timer"`
	TimerPending []int64 `json:"timer_pending"`
	HogPolls     int64   `json:"hog_polls"`
	HogCPUNs     int64   `json:"hog_cpu_ns"`
	Unfinished   int64   `json:"unfinished"`
	WithoutAPoll int     `json:"without_a_poll"`
	BusyPolls    int64   `json:"busy_polls"`
	ElapsedNs    int64   `json:"elapsed_ns"`
}

// fetch reads wakes until the input ends, and calls begin at the first one that counts.
func (f *figures) fetch(in *os.File, begin func()) {
	var pair [16]byte
	begun := false
	for {
		if _, err := io.ReadFull(in, pair[:]); err != nil {
			return
		}
		at := now()
		due := int64(binary.LittleEndian.Uint64(pair[:8]))
		sent := int64(binary.LittleEndian.Uint64(pair[8:]))
		if sent == 0 {
			windowFrom.Store(due)
			continue
		}
		f.Served++
		if due < windowFrom.Load() {
			continue
		}
		if !begun {
			begun = true
			begin()
		}
		f.Wake = append(f.Wake, at-sent)
		f.Intended = append(f.Intended, at-due)
	}
}

func main() {
	flag.Parse()
	rate := perUs()
	runtime.GOMAXPROCS(*workers)
	// Only a descriptor that does not block is read through the network poller.
	syscall.SetNonblock(0, true)
	in := os.NewFile(0, "stdin")

	port := 0
	if *echo {
		port = serveEcho(int64(*requestUs * rate))
	}
	period := *periodUs * 1000
	sleepers := make([]*sleeper, *tasks)
	start := now()
	for i := range sleepers {
		sleepers[i] = &sleeper{due: start + period + period*int64(i)/int64(*tasks)}
		go sleepers[i].run(period)
	}
	var stop atomic.Bool // ends the busy ones, too, so that hogs may end in peace
	var alive, busyPolls atomic.Int64
	all := make([]*hog, *hogs)
	for i := range all {
		all[i] = &hog{}
		all[i].prepare()
	}
	read := func() reading {
		r := reading{at: now(), busy: busyPolls.Load()}
		for _, h := range all {
			r.polls += h.polls.Load()
			r.iterations += h.iterations.Load()
		}
		return r
	}
	json.NewEncoder(os.Stdout).Encode(map[string]int{"port": port})

	for range *busy {
		go func() {
			for n := int64(*busyUs * rate); !stop.Load(); {
				work(n)
				busyPolls.Add(1)
				runtime.Gosched()
			}
		}()
	}
	iterations := int64(*hogMs * 1e3 * rate)
	for _, h := range all {
		alive.Add(1)
		go func() {
			defer alive.Add(-1)
			for !stop.Load() {
				if *fresh {
					done := make(chan struct{})
					go func() { h.stick(iterations); close(done) }()
					<-done
				} else {
					h.stick(iterations)
					runtime.Gosched()
				}
			}
		}()
	}

	var f figures
	first := read()
	f.fetch(in, func() { first = read() })
	last := read()
	f.Timer, f.TimerPending = []int64{}, []int64{}
	for _, s := range sleepers {
		late, pending := s.close(last.at, period)
		f.Timer = append(f.Timer, late...)
		f.TimerPending = append(f.TimerPending, pending...)
	}
	stop.Store(true)
	for deadline := now() + *drainMs*1e6; alive.Load() > 0 && now() < deadline; {
		time.Sleep(2 * time.Millisecond)
	}
	f.Unfinished = alive.Load()
	f.HogPolls = last.polls - first.polls
	f.HogCPUNs = int64(float64(last.iterations-first.iterations) / rate * 1e3)
	f.BusyPolls = last.busy - first.busy
	f.ElapsedNs = last.at - first.at
	for _, h := range all {
		if h.polls.Load() == 0 {
			f.WithoutAPoll++
		}
	}
	if f.Wake == nil {
		f.Wake, f.Intended = []int64{}, []int64{}
	}
	json.NewEncoder(os.Stdout).Encode(f)
}
