package interpret

import (
	"fmt"
	"regexp"
	"strings"
)

// plainImage matches the image references that imageOf can parse; others are Unknown.
var plainImage = regexp.MustCompile(`^[a-z0-9]+([._/:-][a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$`)

// images returns Kyverno's variable images: the images by the list and the name of their
// container.
func images(object map[string]any) (map[string]any, error) {
	kind, _ := object["kind"].(string)
	spec := []string{"spec", "template", "spec"}
	switch kind {
	case "Pod":
		spec = []string{"spec"}
	case "CronJob":
		spec = []string{"spec", "jobTemplate", "spec", "template", "spec"}
	case "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job":
	default:
		return nil, nil
	}
	var in any = object
	for _, step := range spec {
		in, _ = fieldOf(in, step)
	}
	out := map[string]any{}
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		l, _ := fieldOf(in, list)
		containers, _ := l.([]any)
		found := map[string]any{}
		for i, c := range containers {
			name, ok := fieldOf(c, "name")
			key, isText := name.(string)
			if !ok || !isText {
				return nil, errRule
			}
			value, _ := fieldOf(c, "image")
			image, _ := value.(string)
			if strings.TrimSpace(image) == "" {
				continue
			}
			info := imageOf(image)
			info["jsonPointer"] = fmt.Sprintf("/%s/%s/%d/image", strings.Join(spec, "/"), list, i)
			found[key] = info
		}
		if len(found) > 0 {
			out[list] = found
		}
	}
	return out, nil
}

// imageOf parses an image reference.
func imageOf(image string) map[string]any {
	full := image
	if first, _, ok := strings.Cut(image, "/"); !ok || !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first {
		full = "docker.io/" + image
	}
	if !plainImage.MatchString(full) {
		unknown("the image %q", image)
	}
	rest, digest, _ := strings.Cut(full, "@")
	registry, path, _ := strings.Cut(rest, "/")
	path, tag, _ := strings.Cut(path, ":")
	if tag == "" && digest == "" {
		tag = "latest"
	}
	info := map[string]any{
		"registry": registry, "path": path, "name": path[strings.LastIndexByte(path, '/')+1:],
		"referenceWithTag": registry + "/" + path + ":" + tag, "reference": registry + "/" + path + ":" + tag,
	}
	if tag != "" {
		info["tag"] = tag
	}
	if digest != "" {
		info["digest"], info["reference"] = digest, registry+"/"+path+"@"+digest
	}
	return info
}
