package rival

import (
	"fmt"
	"strings"
	"testing"
)

// The orders are those of std::unordered_map<std::string, int> of g++ 12 on
// x86-64, with as many buckets as hold the keys, and after it has grown.
func TestMapOrder(t *testing.T) {
	for n, want := range map[int]string{
		2:  "cpu:1 cpu:0",
		10: "cuda:7 cuda:6 cuda:4 cuda:3 cuda:2 cuda:5 cuda:1 cuda:0 cpu:1 cpu:0",
		13: "cuda:9 cuda:8 cuda:7 cuda:6 cuda:4 cuda:3 cuda:2 cuda:10 cuda:5 cuda:1 cuda:0 cpu:1 cpu:0",
		14: "cpu:1 cuda:0 cuda:11 cuda:1 cuda:5 cuda:10 cpu:0 cuda:2 cuda:3 cuda:4 cuda:6 cuda:7 cuda:8 cuda:9",
		18: "cuda:15 cuda:13 cuda:12 cpu:1 cuda:0 cuda:11 cuda:1 cuda:5 cuda:10 cpu:0 cuda:2 cuda:3 cuda:4 cuda:6 cuda:14 cuda:7 cuda:8 cuda:9",
		34: "cuda:29 cuda:28 cuda:23 cuda:22 cuda:7 cuda:25 cuda:4 cuda:26 cuda:16 cuda:2 cpu:0 cuda:5 cuda:17 cuda:30 cuda:20 cuda:18 cuda:1 cuda:9 cuda:0 cuda:27 cuda:14 cuda:6 cpu:1 cuda:12 cuda:31 cuda:11 cuda:13 cuda:3 cuda:10 cuda:19 cuda:15 cuda:21 cuda:8 cuda:24",
		74: "cuda:70 cuda:68 cuda:67 cuda:66 cuda:64 cuda:65 cuda:62 cuda:60 cuda:57 cuda:24 cuda:40 cuda:61 cuda:15 cuda:10 cuda:3 cuda:36 cuda:11 cuda:12 cuda:34 cuda:69 cuda:53 cpu:1 cuda:6 cuda:14 cuda:27 cuda:43 cuda:9 cuda:56 cuda:18 cuda:71 cuda:20 cuda:30 cuda:17 cuda:42 cuda:35 cuda:59 cuda:13 cuda:5 cuda:2 cuda:16 cuda:26 cuda:4 cuda:25 cuda:7 cuda:21 cuda:22 cuda:63 cuda:23 cuda:28 cpu:0 cuda:29 cuda:0 cuda:44 cuda:32 cuda:33 cuda:58 cuda:39 cuda:1 cuda:48 cuda:8 cuda:37 cuda:38 cuda:47 cuda:50 cuda:41 cuda:31 cuda:45 cuda:52 cuda:19 cuda:49 cuda:46 cuda:51 cuda:54 cuda:55",
	} {
		keys := []string{}
		for i := range n {
			if i < 2 {
				keys = append(keys, fmt.Sprintf("cpu:%d", i))
			} else {
				keys = append(keys, fmt.Sprintf("cuda:%d", i-2))
			}
		}
		if got := strings.Join(mapOrder(keys), " "); got != want {
			t.Errorf("%d keys:\n got %s\nwant %s", n, got, want)
		}
	}
	for key, want := range map[string]uint64{"": 6142509188972423790, "cuda:10": 15517449982504376741, "12345678": 10113836418918046885, "0123456789abcdefXYZ": 3947215215395305647} {
		if got := stdHash(key); got != want {
			t.Errorf("hash of %q is %d, want %d", key, got, want)
		}
	}
}
