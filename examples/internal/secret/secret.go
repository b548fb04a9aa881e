// Package secret reads the secret that both sides of an example share. It is never an
// argument, because every user of a host can see those.
package secret

import (
	"fmt"
	"os"
	"strings"
)

// Variable is the environment variable that holds the secret if there is no file.
const Variable = "TOPOCTL_TOKEN"

// Read returns the first line of a file or, without a file, the variable's value. If that
// is empty, engines serve only their own host.
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
