package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// value is a flag that is not text, a number, a time or a switch.
type value[T any] struct {
	text  string
	to    *T
	parse func(string) (T, error)
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return "string" }

func (v *value[T]) Set(text string) (err error) {
	x, err := v.parse(text)
	if err == nil {
		v.text, *v.to = text, x
	}
	return err
}

// Var adds a flag that parse reads. Its error quotes the text and says what is wanted in its place, as those of
// parseBytes and its kin do. Without a default, *to stays as it is.
func Var[T any](cmd *cobra.Command, to *T, name, normal, usage string, parse func(string) (T, error)) {
	v := &value[T]{to: to, parse: parse}
	if normal != "" {
		if err := v.Set(normal); err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", name, err))
		}
	}
	cmd.Flags().Var(v, name, usage)
}

// wordFlag adds a flag that takes one of some words, which the shell is offered.
func wordFlag[T ~string](cmd *cobra.Command, to *T, name string, normal T, usage string, words []T) {
	Var(cmd, to, name, string(normal), usage, func(s string) (T, error) { return T(s), known(s, wordsOf(words)) })
	Offer(cmd, map[string]completer{name: Words(words...)})
}

// known returns an error if a word is not one of those wanted.
func known(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	return suggest(fmt.Errorf("%q: want %s", s, either(words)), s, words, "")
}

// wordList is a flag that takes several of some words, each once.
type wordList[T ~string] struct {
	to    *[]T
	words []T
	given bool
}

func (l *wordList[T]) Type() string       { return "stringSlice" }
func (l *wordList[T]) String() string     { return "[" + strings.Join(wordsOf(*l.to), ",") + "]" }
func (l *wordList[T]) GetSlice() []string { return wordsOf(*l.to) }

func (l *wordList[T]) Set(text string) error {
	if !l.given {
		*l.to, l.given = nil, true
	}
	for _, s := range strings.Split(text, ",") {
		if text == "" {
			return errors.New("is empty")
		}
		if err := known(s, wordsOf(l.words)); err != nil {
			return err
		}
		if slices.Contains(*l.to, T(s)) {
			return fmt.Errorf("%s is given twice", s)
		}
		*l.to = append(*l.to, T(s))
	}
	return nil
}

// wordListFlag adds a flag that takes several of some words, which the shell is offered.
func wordListFlag[T ~string](cmd *cobra.Command, to *[]T, name string, normal []T, usage string, words []T) {
	*to = normal
	cmd.Flags().Var(&wordList[T]{to: to, words: words}, name, usage)
	if len(normal) == 0 {
		cmd.Flag(name).DefValue = "" // which help does not print
	}
	Offer(cmd, map[string]completer{name: WordList(wordsOf(words)...)})
}

// bounded is a flag with a number or a time that has bounds.
type bounded[T cmp.Ordered] struct {
	pflag.Value
	to        *T
	low, most T // no bound above where most is below low
}

// boundError says what is wanted in place of a value that is out of bounds.
type boundError struct{ error }

func (b bounded[T]) Set(text string) error {
	if err := b.Value.Set(text); err != nil {
		return err
	}
	v := *b.to
	if v >= b.low && (v <= b.most || b.most < b.low) {
		return nil
	}
	want := plain(b.low) + " to " + plain(b.most)
	if b.most < b.low {
		want = plain(b.low) + " or more"
		if any(b.low) == any(time.Nanosecond) {
			want = "more than 0"
		}
	}
	return boundError{fmt.Errorf("%v: want %s", v, want)}
}

// plain is a number or a time as people type it: 1h rather than 1h0m0s.
func plain(v any) string {
	s := fmt.Sprint(v)
	if _, isTime := v.(time.Duration); !isTime {
		return s
	}
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "0s" {
		return "0"
	}
	return s
}

// within gives a flag bounds; most below low stands for none above. A default may be out of them.
func within[T cmp.Ordered](cmd *cobra.Command, to *T, name string, low, most T) {
	fl := cmd.Flag(name)
	fl.Value = bounded[T]{fl.Value, to, low, most}
	if fl.DefValue == "0s" {
		fl.DefValue = "" // which help does not print
	}
}

// intFlag adds a flag with a whole number, and timeFlag one with a time, between bounds.
func intFlag(cmd *cobra.Command, to *int, name string, normal, low, most int, usage string) {
	cmd.Flags().IntVar(to, name, normal, usage)
	within(cmd, to, name, low, most)
}

func timeFlag(cmd *cobra.Command, to *time.Duration, name string, normal, low, most time.Duration, usage string) {
	cmd.Flags().DurationVar(to, name, normal, usage)
	within(cmd, to, name, low, most)
}

// unbounded is no bound above.
const unbounded = -1

// wordsOf are words of a type of their own as strings.
func wordsOf[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// badValue says of a flag what is wanted in place of its value.
func badValue(err *pflag.InvalidValueError) error {
	want := map[string]string{
		"duration": "a time, such as 500ms, 10s or 5m", "bool": "true or false", "float64": "a number",
		"int": "a whole number", "uint64": "a whole number, 0 or more",
	}[err.GetFlag().Value.Type()]
	if _, ok := errors.AsType[boundError](err); want == "" || ok {
		return fmt.Errorf("--%s %w", err.GetFlag().Name, errors.Unwrap(err))
	}
	return fmt.Errorf("--%s %q: want %s", err.GetFlag().Name, err.GetValue(), want)
}
