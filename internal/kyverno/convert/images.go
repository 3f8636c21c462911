package convert

import (
	"slices"
	"strings"

	jmespath "github.com/kyverno/go-jmespath"
)

// images is a value within Kyverno's variable images: images itself, a list such as
// images.containers, or one image.
type images struct {
	list  string // containers, initContainers or ephemeralContainers; "" for images itself
	image *expr  // the text of one image, if the value is one
	// among is a list whose element x has the image: the elements that match the name. It is nil
	// if the image belongs to the current element of a loop.
	among *expr
	x     string
}

// imageLists are the lists that have images.
var imageLists = []string{"containers", "initContainers", "ephemeralContainers"}

// podSpecs has the path of the Pod spec in the kinds for which Kyverno fills the variable images.
var podSpecs = map[string][]string{
	"Pod": {"spec"}, "CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	"DaemonSet": {"spec", "template", "spec"}, "Deployment": {"spec", "template", "spec"}, "ReplicaSet": {"spec", "template", "spec"},
	"ReplicationController": {"spec", "template", "spec"}, "StatefulSet": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
}

// imagesOf returns the path of a list of containers.
func (s *scope) imagesOf(list string) path {
	var at []string
	for _, gvk := range s.shape.gvks {
		spec, ok := podSpecs[gvk.Kind]
		if !ok || at != nil && !slices.Equal(at, spec) {
			refuse("images of the kind %s", gvk.Kind)
		}
		at = spec
	}
	return path{root: object}.to(append(slices.Clone(at), list)...)
}

// image translates the selection of a field of images.
func (s *scope) image(at images, name string) value {
	switch {
	case at.list == "":
		if !slices.Contains(imageLists, name) {
			refuse("images.%s", name)
		}
		return value{images: &images{list: name}}
	case at.among != nil:
		return s.partAmong(at, name)
	case at.image != nil:
		return s.imagePart(*at.image, name)
	}
	list := s.imagesOf(at.list)
	key := str(name)
	if inner, ok := s.nested[name]; ok {
		outside := *s
		outside.current = nil
		v := outside.query(inner)
		if v.path != nil && slices.Equal(v.path.whole(), append(list.whole(), element, "name")) {
			image := s.shape.get(v.path.parent().to("image"))
			return value{images: &images{list: at.list, image: s.parsed(image)}}
		}
		key = outside.plain(v)
		if key.Type != "string" {
			refuse("images of what is not known to be a name: %s", inner)
		}
	}
	x, _ := s.loop(list)
	elements := call(s.shape.or(list, list0), "filter", "list", atom(x, ""), equal(member(atom(x, ""), "name", false), key))
	return value{images: &images{list: at.list, image: s.parsed(member(atom(x, ""), "image", false)), among: &elements, x: x}}
}

// partAmong translates the selection of a part of the image of the container with a given name.
func (s *scope) partAmong(at images, name string) value {
	part := s.imagePart(*at.image, name)
	x := atom(at.x, "")
	first := func(items, part expr, sign string) expr {
		return atom(call(items, "map", "list", x, part).Text+sign, "string")
	}
	if !part.optional {
		return value{expr: first(*at.among, part.expr, "[?0]"), optional: true, must: first(*at.among, part.expr, "[0]")}
	}
	having := call(*at.among, "filter", "list", x, call(part.expr, "hasValue", "bool"))
	return value{
		expr: first(having, call(part.expr, "value", "string"), "[?0]"), optional: true, must: first(*at.among, part.must, "[0]"),
	}
}

func (s *scope) parsed(image expr) *expr {
	image.Type = "string"
	s.note(Better, refusesImages, "Kyverno refuses an object with an image that is no reference, such as Nginx; the policy takes its parts as they are")
	return &image
}

// projectValues translates x.*.y where x is one of the lists of images.
func (s *scope) projectValues(n jmespath.ASTNode) value {
	v := s.eval(n.Children[0])
	if v.images == nil || v.images.list == "" || v.images.image != nil {
		refuse("* of what is no object of images")
	}
	list := s.imagesOf(v.images.list)
	s.missing(list)
	x, at := s.loop(list)
	inner := s.at(value{images: &images{list: v.images.list, image: s.parsed(s.shape.get(at.to("image")))}})
	part := inner.eval(n.Children[1])
	if part.expr.Text == "" {
		refuse("images.%s.* as a whole", v.images.list)
	}
	items := s.shape.or(list, list0)
	if part.optional {
		items = call(items, "filter", "list", atom(x, ""), call(part.expr, "hasValue", "bool"))
		part.expr = call(part.expr, "value", "string")
	}
	return value{expr: call(items, "map", "list", atom(x, ""), part.expr), elem: "string"}
}

var list0 = list()

// registryPattern finds the registry at the beginning of an image. Kyverno takes the part before
// the first slash for the registry if it has a dot, a colon or a capital letter, or is localhost.
const registryPattern = "^([^/]*[.:A-Z][^/]*|localhost)/"

// imagePart cuts an image into parts, as Kyverno does.
func (s *scope) imagePart(image expr, name string) value {
	text := func(e expr) value { return value{expr: e} }
	first := func(e expr, sep string) expr {
		return atom(call(e, "split", "list", str(sep)).Text+"[0]", "string")
	}
	last := call(image, "find", "string", str("[^/]+$")) // name, tag and digest
	tag := call(first(last, "@"), "split", "list", str(":")).Text
	hasDigest := call(image, "contains", "bool", str("@"))
	registry := when(call(image, "matches", "bool", str(registryPattern)), first(image, "/"), str("docker.io"))
	registry.Type = "string"
	path := first(first(call(image, "substring", "string", call(call(image, "find", "string", str(registryPattern)), "size", "int")), "@"), ":")
	digest := call(image, "split", "list", str("@")).Text
	whole := func(end ...expr) expr {
		return sum(append([]expr{atom("("+registry.Text+")", "string"), str("/"), path}, end...)...)
	}
	switch name {
	case "registry":
		return text(registry)
	case "path":
		return text(path)
	case "name":
		return text(first(first(last, "@"), ":"))
	case "tag":
		// An image with a digest has a tag only if it is written out.
		said := atom(tag+"[?1]", "")
		may := when(hasDigest, said, fn("optional.of", "", call(said, "orValue", "string", str("latest"))))
		must := when(hasDigest, atom(tag+"[1]", ""), call(said, "orValue", "string", str("latest")))
		must.Type = "string"
		return value{expr: atom("("+may.Text+")", "string"), optional: true, must: must}
	case "digest":
		return value{expr: atom(digest+"[?1]", "string"), optional: true, must: atom(digest+"[1]", "string")}
	case "reference":
		end := when(hasDigest, sum(str("@"), atom(digest+"[1]", "string")), sum(str(":"), call(atom(tag+"[?1]", ""), "orValue", "string", str("latest"))))
		return text(whole(atom("("+end.Text+")", "string")))
	case "referenceWithTag":
		end := call(atom(tag+"[?1]", ""), "orValue", "string", when(hasDigest, str(""), str("latest")))
		return text(whole(str(":"), end))
	}
	refuse("images.%s", strings.Join([]string{"*", name}, "."))
	return value{}
}
