// Package secret reads the secret that both sides of an example share. It never is an
// argument: everybody on a host sees those.
package secret

import (
	"fmt"
	"os"
	"strings"
)

// Variable is the environment variable that holds the secret where no file does.
const Variable = "TOPOCTL_TOKEN"

// Read gives the first line of a file; without one, the variable's value, which may be
// empty: then engines serve their own host only.
func Read(file string) ([]byte, error) {
	text := os.Getenv(Variable)
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
		text = string(data)
		if strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("token: %s is empty", file)
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	return []byte(strings.TrimSpace(line)), nil
}
