package document

import "testing"

// Text is text in whatever encoding a byte order mark names.
func TestUTF16(t *testing.T) {
	const want = "GPU0\u00a0µ𝄞\n"
	for _, data := range []string{
		want, "\ufeff" + want,
		"\xff\xfeG\x00P\x00U\x000\x00\xa0\x00\xb5\x00\x34\xd8\x1e\xdd\n\x00",
		"\xfe\xff\x00G\x00P\x00U\x000\x00\xa0\x00\xb5\xd8\x34\xdd\x1e\x00\n",
	} {
		if got, err := Unpack([]byte(data), 100); string(got) != want || err != nil {
			t.Errorf("%q gives %q, %v", data, got, err)
		}
	}
	if got, err := Unpack([]byte("\xff\xfe"), 100); err == nil || err.Error() != "is empty" {
		t.Errorf("a mark alone gives %q, %v", got, err)
	}
}
