//go:build !linux

package bind

import "errors"

func newEvent() (own, callers int32, err error) { return 0, 0, errors.ErrUnsupported }
func setEvent(int32)                            {}
func closeEvent(int32)                          {}
