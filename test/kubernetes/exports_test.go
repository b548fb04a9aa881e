package kubernetes

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kueuev1beta2 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	nfdv1alpha1 "sigs.k8s.io/node-feature-discovery/api/nfd/v1alpha1"
	volcanov1alpha1 "volcano.sh/apis/pkg/apis/topology/v1alpha1"
)

// exports are the golden files of "topoctl fleet export".
const exports = "../../internal/fleet/export/testdata"

func init() {
	for kind, make := range map[string]func() any{
		"resource.k8s.io/v1 ResourceClaimTemplate": func() any { return &resourcev1.ResourceClaimTemplate{} },
		"kueue.x-k8s.io/v1beta2 Topology":          func() any { return &kueuev1beta2.Topology{} },
		"nfd.k8s-sigs.io/v1alpha1 NodeFeature":     func() any { return &nfdv1alpha1.NodeFeature{} },
		"topology.volcano.sh/v1alpha1 HyperNode":   func() any { return &volcanov1alpha1.HyperNode{} },
	} {
		kinds[kind] = make
	}
}

var header = regexp.MustCompile(`(?m)^apiVersion: (.*)\nkind: (.*)$`)

// documents splits a file and decodes each object strictly, as the type that it says it is.
func documents(t *testing.T, name string) (out []any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(exports, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		m := header.FindSubmatch(part)
		if m == nil {
			continue
		}
		o, err := strictly(string(m[1])+" "+string(m[2]), part)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, part)
			continue
		}
		out = append(out, o)
	}
	return out
}

// What fleet export writes for Kubernetes has the fields that the published types have and no others, and says
// what the fleet of its test has: six hosts, two groups, eight GPUs each.
func TestFleetExports(t *testing.T) {
	features := documents(t, "nodefeature.yaml")
	for _, o := range features {
		f := o.(*nfdv1alpha1.NodeFeature)
		if node := f.Labels[nfdv1alpha1.NodeFeatureObjNodeNameLabel]; node == "" || f.Name != "topoctl-"+node || len(f.Spec.Features.Instances["topoctl.port"].Elements) != 14 ||
			f.Spec.Features.Attributes["topoctl.fabric"].Elements["rails"] != "8" || f.Spec.Labels["topoctl.dev/class"] != "c-462d55d8" {
			t.Errorf("%+v", f)
		}
		for k, v := range f.Spec.Labels {
			checkLabel(t, k, v)
		}
	}
	var members []string
	nodes := documents(t, "hypernode.yaml")
	for _, o := range nodes {
		h := o.(*volcanov1alpha1.HyperNode)
		for _, m := range h.Spec.Members {
			members = append(members, string(m.Type)+" "+m.Selector.ExactMatch.Name)
		}
		if errs := validation.IsDNS1123Subdomain(h.Name); len(errs) > 0 {
			t.Errorf("%s: %v", h.Name, errs)
		}
	}
	if got := strings.Join(members, ","); len(nodes) != 3 || got != "Node n1,Node n2,Node n3,Node n4,Node n5,Node n6,HyperNode su-ae3f3952,HyperNode su-be1f95f3" {
		t.Errorf("%d HyperNodes with %s", len(nodes), got)
	}
	var levels []string
	for _, o := range documents(t, "kueue.yaml") {
		for _, l := range o.(*kueuev1beta2.Topology).Spec.Levels {
			levels = append(levels, l.NodeLabel)
			checkLabel(t, l.NodeLabel, "x")
		}
	}
	if got := strings.Join(levels, " "); got != "fabric.topograph.run/tier-1 fabric.topograph.run/tier-0 kubernetes.io/hostname" {
		t.Errorf("levels %s", got)
	}
	claims := documents(t, "dra-claim.yaml")
	for _, o := range claims {
		requests := o.(*resourcev1.ResourceClaimTemplate).Spec.Spec.Devices.Requests
		if len(requests) != 2 || requests[0].Exactly.Count != 4 || requests[1].Exactly.Count != 4 || len(requests[0].Exactly.Selectors[0].CEL.Expression) > resourcev1.CELSelectorExpressionMaxLength {
			t.Errorf("%+v", requests)
		}
	}
	if len(features) != 6 || len(claims) != 2 {
		t.Errorf("%d NodeFeatures, %d claims", len(features), len(claims))
	}
}

func checkLabel(t *testing.T, key, value string) {
	t.Helper()
	if errs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(errs) > 0 {
		t.Errorf("%s=%s: %v", key, value, errs)
	}
}

// The labels of nodes and of feature files are valid.
func TestFleetLabels(t *testing.T) {
	n := 0
	for _, name := range []string{"k8s-labels.sh", "nfd-n2"} {
		text, err := os.ReadFile(filepath.Join(exports, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			for _, word := range strings.Fields(line) {
				if key, value, ok := strings.Cut(word, "="); ok {
					n++
					checkLabel(t, key, value)
				}
			}
		}
	}
	if n != 6*7+7 {
		t.Errorf("%d labels", n)
	}
}

// Attributes of devices are what a ResourceSlice may have.
func TestFleetAttributes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(exports, "dra-attributes.json"))
	if err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	var hosts map[string]map[string]map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	if err := in.Decode(&hosts); err != nil {
		t.Fatal(err)
	}
	if len(hosts) != 6 || len(hosts["n1"]) != 14 {
		t.Errorf("%d hosts, %d devices", len(hosts), len(hosts["n1"]))
	}
	for _, devices := range hosts {
		for at, attributes := range devices {
			if len(attributes) > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
				t.Errorf("%s: %d attributes", at, len(attributes))
			}
			for name, a := range attributes {
				domain, id, _ := strings.Cut(string(name), "/")
				if len(validation.IsDNS1123Subdomain(domain)) > 0 || len(validation.IsCIdentifier(id)) > 0 || len(id) > resourcev1.DeviceMaxIDLength || len(domain) > resourcev1.DeviceMaxDomainLength {
					t.Errorf("name %s", name)
				}
				if a.StringValue != nil && len(*a.StringValue) > resourcev1.DeviceAttributeMaxValueLength {
					t.Errorf("%s: %s", name, *a.StringValue)
				}
			}
		}
	}
}

// The check can fail.
func TestFleetExportsRefuses(t *testing.T) {
	for name, c := range map[string][3]string{
		"nodefeature.yaml": {"nfd.k8s-sigs.io/v1alpha1 NodeFeature", "elements:", "element:"},
		"hypernode.yaml":   {"topology.volcano.sh/v1alpha1 HyperNode", "exactMatch:", "exactmatch:"},
		"kueue.yaml":       {"kueue.x-k8s.io/v1beta2 Topology", "nodeLabel:", "label:"},
		"dra-claim.yaml":   {"resource.k8s.io/v1 ResourceClaimTemplate", "count: 4", "count: four"},
	} {
		text, err := os.ReadFile(filepath.Join(exports, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			if !header.Match(part) {
				continue
			}
			wrong := bytes.Replace(part, []byte(c[1]), []byte(c[2]), 1)
			if _, err := strictly(c[0], wrong); bytes.Equal(wrong, part) || err == nil {
				t.Errorf("%s with %q is accepted", name, c[2])
			}
			break
		}
	}
}
