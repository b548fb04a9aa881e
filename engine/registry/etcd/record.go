package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/document"
)

// What one record may be. Users of etcd may have put anything there.
const (
	maxValue = 256 << 10 // bytes
	maxKeys  = 1 << 14   // of a listing
)

var recordLimits = document.Limits{Bytes: maxValue, Elements: 1 << 13, Depth: 4}

// keys are those of engines.
type keys struct{ prefix string }

func newKeys(prefix string) keys { return keys{prefix + "/v1/engines/"} }

// of is the key of a name, which may have slashes.
func (k keys) of(name string) string { return k.prefix + url.PathEscape(name) }

// decode reads what is stored under a key. The record must be that of the name in the key: etcd's
// roles give a user keys, and whoever has a key has that name alone.
func (k keys) decode(kv *mvccpb.KeyValue) (registry.Record, error) {
	name, err := url.PathUnescape(strings.TrimPrefix(string(kv.Key), k.prefix))
	if err != nil || k.of(name) != string(kv.Key) {
		return registry.Record{}, errors.New("the key is not that of a name")
	}
	r, err := decode(kv.Value)
	switch {
	case err != nil:
		return r, err
	case kv.Lease == 0:
		return r, errors.New("it has no lease: no engine has published it, and it would stay for ever")
	case r.Name != name:
		return r, fmt.Errorf("the record is of another name, %.80q", r.Name)
	}
	return r, nil
}

func decode(value []byte) (registry.Record, error) {
	var r registry.Record
	err := recordLimits.Check(value)
	if err == nil {
		err = document.Locate(value, json.Unmarshal(value, &r))
	}
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return registry.Record{}, err
	}
	return r, nil
}

func encode(r registry.Record) (string, error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) > maxValue {
		err = fmt.Errorf("record of %q: %d bytes: want at most %d", r.Name, len(data), maxValue)
	}
	return string(data), err
}
