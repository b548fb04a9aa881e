// Package kubernetes holds examples/kubernetes to the published types of Kubernetes and of the
// Prometheus operator. The API server warns of unknown fields and drops them; here they are errors.
package kubernetes

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const examples = "../../examples/kubernetes"

// kinds are the types that the manifests may use, by apiVersion and kind.
var kinds = map[string]func() any{
	"v1 Namespace":                            func() any { return &corev1.Namespace{} },
	"v1 Service":                              func() any { return &corev1.Service{} },
	"apps/v1 DaemonSet":                       func() any { return &appsv1.DaemonSet{} },
	"apps/v1 StatefulSet":                     func() any { return &appsv1.StatefulSet{} },
	"batch/v1 Job":                            func() any { return &batchv1.Job{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networkingv1.NetworkPolicy{} },
	"scheduling.k8s.io/v1 PriorityClass":      func() any { return &schedulingv1.PriorityClass{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoringv1.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &monitoringv1.PrometheusRule{} },
}

// object is one object of a kustomization: as it is sent, and as the type that it is.
type object struct {
	text  []byte
	typed any
}

// strictly decodes an object as the API server does that was told to be strict: what its type does
// not have is an error, and so is a field in other letters.
func strictly(kind string, text []byte) (any, error) {
	make, ok := kinds[kind]
	if !ok {
		return nil, errors.New("unknown kind " + kind)
	}
	o := make()
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	wrong, err := json.UnmarshalStrict(data, o)
	return o, errors.Join(append(wrong, err)...)
}

// build is what kubectl apply -k DIR sends, by kind.
func build(t *testing.T, dir string) map[string][]object {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]object{}
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		kind := r.GetApiVersion() + " " + r.GetKind()
		typed, err := strictly(kind, text)
		if err != nil {
			t.Errorf("%s: %s %s: %v", dir, kind, r.GetName(), err)
			continue
		}
		out[kind] = append(out[kind], object{text, typed})
	}
	return out
}

// one is the object of its kind.
func one[T any](t *testing.T, objects map[string][]object) *T {
	t.Helper()
	var found []*T
	for _, list := range objects {
		for _, o := range list {
			if typed, ok := o.typed.(*T); ok {
				found = append(found, typed)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are a %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// Every folder that can be applied is built, and what it sends has no field that the API lacks.
func TestStrict(t *testing.T) {
	for dir, want := range map[string]int{
		examples: 5, filepath.Join(examples, "check"): 1, filepath.Join(examples, "engines"): 3, "testdata/production": 8,
	} {
		got := 0
		for _, list := range build(t, dir) {
			got += len(list)
		}
		if got != want {
			t.Errorf("%s: %d objects, want %d", dir, got, want)
		}
	}
	// Whatever lies in the examples is part of one of these.
	used := []string{"check", "components/monitoring", "components/nvidia", "components/rdma", "engines", "."}
	err := filepath.WalkDir(examples, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "kustomization.yaml" {
			if dir, _ := filepath.Rel(examples, filepath.Dir(path)); !slices.Contains(used, dir) {
				t.Errorf("%s is not built by this test", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The check can fail: one letter of a field, a value of another type, a field at the wrong level.
func TestStrictRefuses(t *testing.T) {
	objects := build(t, "testdata/production")
	for _, c := range []struct{ kind, old, new string }{
		{"apps/v1 DaemonSet", "readOnlyRootFilesystem:", "readOnlyRootFileSystem:"},
		{"apps/v1 DaemonSet", "hostNetwork: true", "hostNetwork: yes please"},
		{"apps/v1 DaemonSet", "memory: 512Mi", "memory: 512MB of it"},
		{"batch/v1 Job", "podFailurePolicy:", "podFailurePolicies:"},
		{"v1 Service", "clusterIP: None", "clusterIP: None\n  headless: true"},
		{"monitoring.coreos.com/v1 ServiceMonitor", "scrapeTimeout:", "timeout:"},
		{"monitoring.coreos.com/v1 PrometheusRule", "expr:", "expression:"},
	} {
		text := objects[c.kind][0].text
		wrong := bytes.Replace(text, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(text, wrong) {
			t.Errorf("%s has no %q", c.kind, c.old)
		}
		if _, err := strictly(c.kind, wrong); err == nil {
			t.Errorf("%s: %q for %q is accepted", c.kind, c.new, c.old)
		}
	}
}

// templates are the pods that a folder makes, by the name of what makes them.
func templates(objects map[string][]object) map[string]*corev1.PodTemplateSpec {
	out := map[string]*corev1.PodTemplateSpec{}
	for _, list := range objects {
		for _, o := range list {
			switch o := o.typed.(type) {
			case *appsv1.DaemonSet:
				out[o.Name] = &o.Spec.Template
			case *appsv1.StatefulSet:
				out[o.Name] = &o.Spec.Template
			case *batchv1.Job:
				out[o.Name] = &o.Spec.Template
			}
		}
	}
	return out
}

// Pods have no more rights than they need: those of the level "restricted", apart from the node's
// network, and with RDMA root's user with one capability.
func TestLeastPrivilege(t *testing.T) {
	for _, c := range []struct {
		dir          string
		user         int64
		capabilities []corev1.Capability
	}{
		{examples, 65532, nil}, {filepath.Join(examples, "check"), 65532, nil}, {filepath.Join(examples, "engines"), 65532, nil},
		{"testdata/production", 0, []corev1.Capability{"IPC_LOCK"}},
	} {
		for name, pod := range templates(build(t, c.dir)) {
			s := pod.Spec.SecurityContext
			if *s.RunAsUser != c.user || (s.RunAsNonRoot != nil && *s.RunAsNonRoot) != (c.user != 0) || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %s: %+v", c.dir, name, s)
			}
			if pod.Spec.HostPID || pod.Spec.HostIPC || pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
				t.Errorf("%s: %s shares more than it needs", c.dir, name)
			}
			for _, v := range pod.Spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("%s: %s mounts %s of the node", c.dir, name, v.HostPath.Path)
				}
			}
			for _, x := range pod.Spec.Containers {
				k := x.SecurityContext
				if k.Privileged != nil || *k.AllowPrivilegeEscalation || !*k.ReadOnlyRootFilesystem || k.RunAsUser != nil ||
					!slices.Equal(k.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(k.Capabilities.Add, c.capabilities) {
					t.Errorf("%s: %s: %+v", c.dir, name, k)
				}
				if x.Resources.Requests.Cpu().IsZero() || x.Resources.Requests.Memory().IsZero() || x.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: %s: resources %+v", c.dir, name, x.Resources)
				}
			}
		}
	}
}

// Names that refer to each other in different files agree.
func TestReferences(t *testing.T) {
	objects := build(t, "testdata/production")
	agent, service, monitor := one[appsv1.DaemonSet](t, objects), one[corev1.Service](t, objects), one[monitoringv1.ServiceMonitor](t, objects)
	labels := agent.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"the DaemonSet": agent.Spec.Selector.MatchLabels, "the Service": service.Spec.Selector,
		"the NetworkPolicy": one[networkingv1.NetworkPolicy](t, objects).Spec.PodSelector.MatchLabels,
	} {
		if !maps.Equal(selector, labels) {
			t.Errorf("%s selects %v, the agent's pods are %v", what, selector, labels)
		}
	}
	if !maps.Equal(monitor.Spec.Selector.MatchLabels, service.Labels) {
		t.Errorf("the ServiceMonitor selects %v, the Service is %v", monitor.Spec.Selector.MatchLabels, service.Labels)
	}
	ports := map[string]int32{}
	for _, p := range agent.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.String()] != p.Port {
			t.Errorf("the Service's port %s leads to %v, the pod has %v", p.Name, p.TargetPort, ports)
		}
	}
	for _, e := range monitor.Spec.Endpoints {
		if _, ok := ports[e.Port]; !ok {
			t.Errorf("the ServiceMonitor reads port %s", e.Port)
		}
	}
	for _, dir := range []string{examples, filepath.Join(examples, "engines")} {
		for name, pod := range templates(build(t, dir)) {
			c := pod.Spec.Containers[0]
			probed := []*corev1.Probe{c.StartupProbe, c.ReadinessProbe}
			for _, p := range probed {
				if p.HTTPGet.Path != "/healthz" || p.HTTPGet.Port.String() != "http" {
					t.Errorf("%s: probe %+v", name, p.HTTPGet)
				}
			}
			if mode := pod.Spec.Volumes[0].Secret.DefaultMode; *mode != 0o440 {
				t.Errorf("%s: the token has mode %o", name, *mode)
			}
		}
	}
	if set := one[appsv1.StatefulSet](t, build(t, filepath.Join(examples, "engines"))); set.Spec.ServiceName != "engine" {
		t.Errorf("the StatefulSet's names are below %q", set.Spec.ServiceName)
	}
	// The pages of an agent are told apart, or their up would be one series with two values.
	if paths := monitor.Spec.Endpoints; len(paths) != 2 || paths[0].Path == paths[1].Path {
		t.Errorf("the ServiceMonitor reads %+v", paths)
	}
	for _, e := range monitor.Spec.Endpoints {
		if !slices.ContainsFunc(e.RelabelConfigs, func(r monitoringv1.RelabelConfig) bool { return r.TargetLabel == "metrics_path" }) {
			t.Errorf("%s has no label of its own", e.Path)
		}
	}
	for kind, list := range objects {
		for _, o := range list {
			if namespace := o.typed.(metav1.Object).GetNamespace(); namespace != "topoctl" && kind != "v1 Namespace" && kind != "scheduling.k8s.io/v1 PriorityClass" {
				t.Errorf("%s is in the namespace %q", kind, namespace)
			}
		}
	}
	if one[schedulingv1.PriorityClass](t, objects).Name != agent.Spec.Template.Spec.PriorityClassName {
		t.Error("the agent's priority class is another")
	}
}

// The program takes the arguments that the manifests give it: an agent starts and ends with its input.
func TestArguments(t *testing.T) {
	program := filepath.Join(t.TempDir(), "topoctl")
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", program, "./cmd/topoctl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef"), 0o440); err != nil {
		t.Fatal(err)
	}
	stands := strings.NewReplacer("$(NODE_NAME)", "n1", "$(NODE_IP):9411", "127.0.0.1:0", "$(POD_IP):9411", "127.0.0.1:0", ":7411", ":0", "/etc/topoctl/token", token, "1GiB", "1MiB")
	for _, dir := range []string{examples, filepath.Join(examples, "check"), filepath.Join(examples, "engines")} {
		for name, pod := range templates(build(t, dir)) {
			var args []string
			for _, a := range pod.Spec.Containers[0].Args {
				args = append(args, stands.Replace(a))
			}
			if args[0] == "agent" {
				args = append(args, "--until-eof")
			} else {
				args = append(args, "--fixture=dgx-h100")
			}
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: topoctl %s: %v\n%s", name, strings.Join(args, " "), err, out)
			}
		}
	}
}

// Alerts fire on what they are about and on nothing else: promtool runs testdata/alerts.yaml.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool (Debian: prometheus)")
	}
	rules := one[monitoringv1.PrometheusRule](t, build(t, "testdata/production"))
	text, err := yaml.Marshal(rules.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"rules.yaml": text, "alerts.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "alerts.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, g := range rules.Spec.Groups {
		for _, r := range g.Rules {
			if !bytes.Contains(cases, []byte("alertname: "+r.Alert+"\n")) {
				t.Errorf("testdata/alerts.yaml does not make %s fire", r.Alert)
			}
		}
	}
}
