package verbs

import (
	"errors"
	"strings"

	"github.com/topoctl/topoctl/internal/base/verbs"
)

// reason is why the library cannot be asked, without what every such error begins
// with.
func reason(err error) string {
	if err == nil {
		return "libibverbs gave no answer"
	}
	text := err.Error()
	if errors.Is(err, verbs.ErrUnavailable) {
		text = strings.TrimPrefix(text, verbs.ErrUnavailable.Error()+": ")
	}
	return text
}
