//go:build cgo && linux && (amd64 || arm64)

package verbs

// RegisterAdvice is for tests.
var RegisterAdvice = registerAdvice

// GIDsOneByOne is what an old library's caller gets.
func GIDsOneByOne(d *Device, port int) ([]GID, error) {
	p, err := d.QueryPort(port)
	if err != nil {
		return nil, err
	}
	return d.gidsOneByOne(port, p)
}
