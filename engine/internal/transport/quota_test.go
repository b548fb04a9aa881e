package transport

import (
	"errors"
	"fmt"
	"testing"
)

// takeAll takes one at a time until there is no more, and says how many it got.
func takeAll(s *Shares, a Account) (n int) {
	for s.Take(a, 1) == nil {
		n++
	}
	return n
}

// However many are greedy, the next peer finds as much as each of them has.
func TestGreedyPeersLeaveRoom(t *testing.T) {
	const limit = 1 << 12
	for greedy := range 20 {
		s := NewShares("places", limit)
		for i := range greedy {
			takeAll(s, Account(fmt.Sprint(i)))
		}
		got := takeAll(s, "good")
		if want := limit >> (greedy + 1); greedy < 3 && got != want {
			t.Errorf("%d greedy peers, one after the other: %d are left, want %d", greedy, got, want)
		}
	}
	for _, greedy := range []int{1, 10, 100, 1000} {
		s := NewShares("places", limit)
		for more := true; more; { // all at the same time
			more = false
			for i := range greedy {
				more = s.Take(Account(fmt.Sprint(i)), 1) == nil || more
			}
		}
		if got, want := takeAll(s, "good"), limit/(greedy+1)/2; got < want {
			t.Errorf("%d greedy peers: %d are left, want %d", greedy, got, want)
		}
	}
}

// A thousand peers that each want a fair part get it.
func TestManyHonestPeers(t *testing.T) {
	s := NewShares("places", 4096)
	for i := range 1000 {
		for n := range 3 {
			if err := s.Take(Account(fmt.Sprint(i)), 1); err != nil {
				t.Fatalf("peer %d, place %d: %v", i, n, err)
			}
		}
	}
}

// Anything up to the limit is had by a peer when no one has anything: more demand than there is
// makes progress.
func TestLargestDemand(t *testing.T) {
	s := NewShares("memory", 100)
	if err := s.Take("a", 101); err == nil {
		t.Error("more than there is was taken")
	}
	if err := s.Take("a", 100); err != nil {
		t.Error(err)
	}
	var full *FullError
	if err := s.Take("b", 1); !errors.As(err, &full) || *full != (FullError{"memory", 0, 100, 100}) {
		t.Errorf("%v", err)
	}
	s.Give("a", 100)
	if err := s.Take("b", 100); err != nil {
		t.Error(err)
	}
	s.Give("b", 100)
	if taken, _ := s.Taken(); taken != 0 || len(s.By()) != 0 {
		t.Errorf("%d are taken, by %v", taken, s.By())
	}
}

func TestReclaim(t *testing.T) {
	s := NewShares("notifications", 4)
	s.OnFull(func() {
		for a, n := range s.By() {
			s.Give(a, n)
		}
	})
	for range 10 {
		if err := s.Take("a", 2); err != nil {
			t.Fatal(err)
		}
	}
}

// Of what has a price, all is taken or nothing.
func TestPrice(t *testing.T) {
	places, memory := NewShares("places", 8), NewShares("memory", 100)
	price := Price{{places, 1}, {memory, 40}, {nil, 7}}
	if err := price.Take("a"); err != nil {
		t.Fatal(err)
	}
	var full *FullError
	if err := price.Take("a"); !errors.As(err, &full) || full.What != "memory" {
		t.Errorf("%v", err)
	}
	if n, _ := places.Taken(); n != 1 {
		t.Errorf("%d places are taken", n)
	}
	price.Give("a")
	if len(places.By())+len(memory.By()) != 0 {
		t.Errorf("%v, %v", places.By(), memory.By())
	}
}

func TestNoLimit(t *testing.T) {
	var s *Shares
	if err := s.Take("a", 1<<60); err != nil {
		t.Error(err)
	}
	s.Give("a", 1<<60)
	if taken, limit := s.Taken(); taken != 0 || limit != 0 {
		t.Error(taken, limit)
	}
}
