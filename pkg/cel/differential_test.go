package cel

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/mapd-project/mapd/test/hammer"
)

// variablesForTests are defined in every case of the differential test.
var variablesForTests = []definition{
	{"n", "size(object.spec.template.spec.containers)"},
	{"names", "object.spec.template.spec.containers.map(c, c.name)"},
	{"twice", "variables.n * 2"},
	{"bad", "object.nosuch"},
	{"worse", "variables.bad + 'x'"},
	{"labels", "object.metadata.labels"},
	{"typed", "{'a': [1, 2]}"},
	{"text", "'t' + 'u'"},
	{"may", "authorizer.group('apps').resource('deployments').check('get').allowed()"},
	{"opt", "optional.of('o')"},
	{"dear", "[1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, a*b*c))).size()"},
	{"a__b", "1"},
}

// expressions is the corpus: each is evaluated by us and in-tree, and value,
// error and cost must be equal. The key is what it is about.
var expressions = map[string]struct {
	want Want
	expr string
}{
	"true":                        {Bool, "true"},
	"select":                      {anything, "object.metadata.name"},
	"deep select":                 {anything, "object.spec.template.spec.containers[0].resources.limits.cpu"},
	"whole list":                  {anything, "object.spec.template.spec.containers"},
	"whole map":                   {anything, "object.metadata.labels"},
	"missing key":                 {anything, "object.nosuch"},
	"missing key deep":            {anything, "object.nosuch.deeper"},
	"null select":                 {anything, "oldObject.metadata"},
	"null has":                    {anything, "has(oldObject.metadata)"},
	"null equality":               {Bool, "oldObject == null"},
	"has":                         {Bool, "has(object.metadata.labels.app)"},
	"has missing":                 {Bool, "has(object.metadata.labels.nosuch)"},
	"has below missing":           {Bool, "has(object.nosuch.deeper)"},
	"index out of range":          {anything, "object.spec.template.spec.containers[7]"},
	"index by variable":           {anything, "object.metadata.labels[object.spec.template.spec.containers[0].name]"},
	"null field":                  {anything, "object.spec.nothing"},
	"double":                      {anything, "object.spec.ratio * 2.0"},
	"int":                         {anything, "object.spec.replicas + 1"},
	"int and double":              {anything, "object.spec.replicas < 3.5"},
	"wrong operands":              {anything, "object.spec.replicas + 'a'"},
	"division by zero":            {anything, "1 / (object.spec.replicas - 3)"},
	"overflow":                    {anything, "9223372036854775807 + object.spec.replicas"},
	"string concat":               {anything, "object.metadata.name + '-' + object.metadata.namespace"},
	"ternary":                     {anything, "object.spec.flag ? 'y' : 'n'"},
	"and absorbs an error":        {Bool, "object.nosuch == 1 && object.spec.replicas == 4"},
	"or absorbs an error":         {Bool, "object.nosuch == 1 || object.spec.replicas == 3"},
	"and with an error":           {Bool, "object.nosuch == 1 && object.spec.replicas == 3"},
	"all":                         {Bool, "object.spec.template.spec.containers.all(c, c.image.contains(':'))"},
	"exists":                      {Bool, "object.spec.template.spec.containers.exists(c, c.name == 'b')"},
	"exists_one":                  {Bool, "object.spec.template.spec.containers.exists_one(c, c.name == 'b')"},
	"filter and map":              {anything, "object.spec.template.spec.containers.filter(c, has(c.ports)).map(c, c.ports[0].containerPort)"},
	"loop variable named object":  {anything, "[1, 2].map(object, object + 1)"},
	"dot reaches past a loop":     {anything, "[1, 2].map(object, .object.spec.replicas + object)"},
	"in list":                     {Bool, "object.metadata.name in ['a', 'web', 'b']"},
	"in map":                      {Bool, "'app' in object.metadata.labels"},
	"optional select":             {anything, "object.?nosuch.orValue('d')"},
	"optional select found":       {anything, "object.metadata.?name.orValue('d' + 'e')"},
	"optional or":                 {anything, "object.?nosuch.or(object.metadata.?name).orValue('d')"},
	"optional or found":           {anything, "object.metadata.?name.or(object.?nosuch).value()"},
	"optional or, first an error": {anything, "optional.of(object.nosuch).or(optional.of(1))"},
	"orValue of no optional":      {anything, "dyn(1).orValue(2)"},
	"optional index":              {anything, "object.spec.template.spec.containers[?5].orValue({'name': 'none'})"},
	"optMap":                      {anything, "object.metadata.?labels.optMap(l, l.app).orValue('x')"},
	"optFlatMap":                  {anything, "object.metadata.?labels.optFlatMap(l, l.?app).hasValue()"},
	"optional unwrap":             {anything, "[optional.of(1), optional.none()].unwrapOpt()"},
	"optional none dereferenced":  {anything, "optional.none().value()"},
	"strings split and join":      {anything, "'a,b,c'.split(',').map(x, x.upperAscii()).join('-')"},
	"strings replace":             {anything, "object.metadata.name.replace('e', '3').substring(1)"},
	"strings format":              {anything, "'%s has %d'.format([object.metadata.name, object.spec.replicas])"},
	"strings quote":               {anything, "strings.quote('a\"b')"},
	"strings bad index":           {anything, "'abc'.charAt(9)"},
	"matches constant":            {Bool, "object.metadata.name.matches('^w.b$')"},
	"matches of an error":         {Bool, "object.nosuch.matches('[0-9]+') || true"},
	"matches an error":            {Bool, "object.metadata.name.matches(object.nosuch) || true"},
	"find in an error":            {anything, "object.nosuch.find('[0-9]+') == '1' || true"},
	"findAll in an error":         {anything, "object.nosuch.findAll('[0-9]+').size() == 1 || true"},
	"findAll of an error":         {anything, "'a1'.findAll(object.nosuch).size() == 1 || true"},
	"format of an error":          {Bool, "string(object.nosuch).format(['a', 'b']) == 'x' || true"},
	"format with an error":        {Bool, "'%s'.format([object.nosuch]) == 'x' || true"},
	"replace in an error":         {Bool, "object.nosuch.replace('a', 'b' + 'c') == 'x' || true"},
	"split of an error":           {Bool, "object.nosuch.split(',' + ';').size() == 1 || true"},
	"split of an error, at most":  {Bool, "object.nosuch.split(',' + ';', 2).size() == 1 || true"},
	"join of an error":            {Bool, "object.nosuch.join(',' + ';') == 'x' || true"},
	"substring of an error":       {Bool, "object.nosuch.substring(1 + 1) == 'x' || true"},
	"substring to an error":       {Bool, "'abc'.substring(object.nosuch, 1 + 1) == 'x' || true"},
	"indexOf in an error":         {Bool, "object.nosuch.indexOf('a' + 'b') == 1 || true"},
	"indexOf from an error":       {Bool, "'abc'.indexOf('a' + 'b', object.nosuch) == 1 || true"},
	"slice of an error":           {Bool, "object.nosuch.slice(1, 1 + 1) == [] || true"},
	"flatten of an error":         {Bool, "object.nosuch.flatten(1 + 1) == [] || true"},
	"contains of an error":        {Bool, "object.nosuch.contains('a' + 'b') || true"},
	"includes of an error":        {Bool, "dyn(object.nosuch).includes(1 + 1) || true"},
	"sets of an error":            {Bool, "sets.contains(object.nosuch, [1 + 1]) || true"},
	"matches built":               {Bool, "object.metadata.name.matches('^' + 'w')"},
	"matches bad":                 {Bool, "object.metadata.name.matches('(' + object.metadata.name)"},
	"regex find":                  {anything, "object.spec.template.spec.containers[0].image.find('[0-9]+')"},
	"regex findAll":               {anything, "'a1b22'.findAll('[0-9]+', 1)"},
	"lists sum min max":           {anything, "[3, 1, 2].sum() + [3, 1, 2].min() + [3, 1, 2].max()"},
	"lists isSorted indexOf":      {anything, "[1, 2, 2].isSorted() ? [1, 2, 2].indexOf(2) + [1, 2, 2].lastIndexOf(2) : -1"},
	"lists min of none":           {anything, "object.spec.empty.min()"},
	"lists includes":              {Bool, "[1, 2].includes(2)"},
	"lists sort":                  {anything, "[3, 1, 2].sort()"},
	"lists sortBy":                {anything, "object.spec.template.spec.containers.sortBy(c, c.image).map(c, c.name)"},
	"lists range":                 {anything, "lists.range(5)"},
	"lists flatten":               {anything, "[[1], [2, 3]].flatten()"},
	"lists distinct":              {anything, "[1, 1, 2].distinct()"},
	"lists slice":                 {anything, "[1, 2, 3].slice(1, 2)"},
	"lists reverse":               {anything, "[1, 2, 3].reverse()"},
	"lists slice bad":             {anything, "[1, 2, 3].slice(2, 9)"},
	"lists first last":            {anything, "[1, 2, 3].first().value() + [1, 2, 3].last().value()"},
	"sets":                        {Bool, "sets.contains([1, 2, 3], [2]) && sets.intersects([1], [1]) && sets.equivalent([1, 1], [1])"},
	"urls":                        {anything, "url('https://h:1/p?q=1').getHostname() + url('https://h:1/p').getEscapedPath()"},
	"urls bad":                    {anything, "url(object.metadata.name)"},
	"quantity":                    {Bool, "quantity(object.spec.template.spec.containers[0].resources.limits.cpu).isLessThan(quantity('1'))"},
	"quantity add":                {anything, "string(quantity('1Gi').add(quantity('1Mi')).asInteger())"},
	"quantity bad":                {anything, "quantity(object.metadata.name)"},
	"ip":                          {anything, "ip('10.0.0.1').family() + (cidr('10.0.0.0/8').containsIP('10.1.1.1') ? 1 : 0)"},
	"format":                      {anything, "format.dns1123Label().validate('A_b').hasValue()"},
	"semver":                      {Bool, "semver('1.2.3').isLessThan(semver('1.10.0'))"},
	"transformList":               {anything, "['a', 'b'].transformList(i, v, v + string(i))"},
	"transformMap":                {anything, "object.metadata.labels.transformMap(k, v, k + v)"},
	"transformMapEntry":           {anything, "{'a': 'x'}.transformMapEntry(k, v, {v: k})"},
	"two variable all":            {Bool, "['a', 'b'].all(i, v, i < 2 && v != '')"},
	"duration and timestamp":      {anything, "timestamp('2026-01-02T03:04:05Z') + duration('1h')"},
	"timestamp parts":             {anything, "timestamp('2026-01-02T03:04:05Z').getHours()"},
	"bytes":                       {anything, "b'ab' + bytes('c')"},
	"type of":                     {anything, "type(object.spec.replicas) == int"},
	"map literal":                 {anything, "{'a': 1, 'b': size(object.metadata.labels)}"},
	"map equality":                {Bool, "object.metadata.labels == {'app': 'web', 'tier': 'front'}"},
	"list equality":               {Bool, "[1, 2] == [1, 2]"},
	"request":                     {anything, "request.operation + request.userInfo.username + request.kind.kind"},
	"request absent":              {anything, "request.subResource"},
	"request absent guarded":      {anything, "request.?subResource.orValue('none')"},
	"request groups":              {Bool, "'dev' in request.userInfo.groups"},
	"request options":             {anything, "request.options.kind"},
	"namespace labels":            {anything, "namespaceObject.metadata.labels['env']"},
	"namespace phase":             {anything, "namespaceObject.status.phase"},
	"params":                      {anything, "params.data.team"},
	"params missing":              {anything, "params.data.nosuch"},
	"authz":                       {Bool, "authorizer.group('apps').resource('deployments').check('get').allowed()"},
	"authz reason":                {anything, "authorizer.group('').resource('pods').namespace('x').name('y').check('delete').reason()"},
	"authz request resource":      {Bool, "authorizer.requestResource.check('get').allowed()"},
	"authz path":                  {Bool, "authorizer.path('/healthz').check('get').allowed()"},
	"authz service account":       {Bool, "authorizer.serviceAccount('shop', 'sa').group('').resource('pods').fieldSelector('a=b').check('get').allowed()"},
	"authz bad account":           {anything, "authorizer.serviceAccount('-', 'sa').path('/a').check('get').allowed()"},
	"authz twice":                 {Bool, "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()"},
	"authz three times":           {Bool, "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed() && authorizer.path('/c').check('get').allowed()"},
	"variable":                    {anything, "variables.n"},
	"variable twice":              {anything, "variables.n + variables.n"},
	"variable of variable":        {anything, "variables.twice + variables.n"},
	"variable list":               {anything, "variables.names.join(',')"},
	"variable fails":              {anything, "variables.bad"},
	"variable fails twice":        {anything, "variables.worse"},
	"variable error absorbed":     {Bool, "variables.bad == 'x' || variables.n == 2"},
	"variable not touched":        {Bool, "variables.n == 2 || variables.bad == 'x'"},
	"variable has":                {Bool, "has(variables.labels) && has(variables.labels.app)"},
	"variable has of a failure":   {anything, "has(variables.bad)"},
	"variable typed":              {anything, "variables.typed.a[0] + 1"},
	"variable constant":           {anything, "variables.text + variables.text"},
	"variable authz":              {Bool, "variables.may && authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()"},
	"variable optional":           {anything, "variables.opt"},
	"variable dear":               {anything, "variables.dear + variables.dear"},
	"variable escaped name":       {anything, "variables.a__b"},
	"variables missing key":       {anything, "dyn(variables).nosuch"},
	"variables size":              {anything, "size(dyn(variables))"},
	"variables as value":          {anything, "dyn(variables) == dyn(variables)"},
	"variables wrong key":         {anything, "dyn(variables)[1]"},
	"loop cost limit":             {anything, "lists.range(1000).map(a, lists.range(1000).map(b, a * b)).size()"},
	"comprehension error":         {anything, "object.spec.template.spec.containers.map(c, c.nosuch)"},
	"string of null":              {anything, "string(object.spec.nothing)"},
	"dyn conversion":              {anything, "int(string(object.spec.replicas)) + int(double(object.spec.replicas))"},
	"bad conversion":              {anything, "int(object.metadata.name)"},
	"optional entries":            {anything, "{?'a': object.?nosuch, ?'b': object.metadata.?name}"},
	"object empty":                {Object, "Object{}"},
	"object labels":               {Object, `Object{metadata: Object.metadata{labels: {"team": "x"}}}`},
	"object computed":             {Object, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, image: "r/" + c.image})}}}}`},
	"object optional entry":       {Object, `Object{spec: Object.spec{?replicas: object.?nosuch, ?x: object.spec.?replicas}}`},
	"object error":                {Object, `Object{metadata: Object.metadata{labels: {"x": object.nosuch}}}`},
	"object conditional":          {Object, `has(object.spec.replicas) ? Object{spec: Object.spec{replicas: 5}} : Object{}`},
	"object variables":            {Object, `Object{metadata: Object.metadata{labels: {"n": string(variables.n), "t": string(params.data.team)}}}`},
	"patch one":                   {JSONPatch, `[JSONPatch{op: "add", path: "/metadata/labels/x", value: "y"}]`},
	"patch conditional":           {JSONPatch, `has(object.metadata.labels) ? [] : [JSONPatch{op: "add", path: "/metadata/labels", value: {}}]`},
	"patch concat":                {JSONPatch, `[JSONPatch{op: "test", path: "/a"}] + [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("a.b/c~d"), value: object.metadata.name}]`},
	"patch map":                   {JSONPatch, `object.spec.template.spec.containers.map(c, JSONPatch{op: "replace", path: "/x/" + c.name, value: c.image})`},
	"patch bad op":                {JSONPatch, `[JSONPatch{op: object.spec.replicas, path: "/a"}]`},
	"patch object":                {JSONPatch, `[JSONPatch{op: "add", path: "/spec", value: Object.spec{replicas: variables.n}}]`},
	"patch fields":                {JSONPatch, `[JSONPatch{op: JSONPatch{op: "add"}.op, path: "/a", from: "/b"}]`},
	"object literal select":       {Object, `Object{a: Object.a{b: 1}.b}`},
	"object literal has":          {Object, `Object{a: has(Object.a{b: 1}.b), c: has(Object.c{}.b)}`},
	"object literal equal":        {Object, `Object{a: Object.a{b: 1} == Object.a{b: 1}, c: dyn(Object.a{}) == Object.b{}, d: dyn(Object.a{}) == 1}`},
	"object literal dyn select":   {Object, `Object{a: dyn(Object.a{b: 1}).b}`},
	"object literal iterated":     {Object, `Object{a: dyn(Object.a{b: 1}).map(k, k)}`},
	"object literal in a sum":     {Object, `Object{a: dyn(Object.a{b: 1}) + [1]}`},
	"object wrong name":           {Object, `Object{metadata: Object.wrong{labels: {"x": "y"}}}`},
	"object wrong in list":        {Object, `Object{spec: Object.spec{containers: [Object.spec.container{name: "a"}]}}`},
	"object wrong in map":         {Object, `Object{spec: Object.spec{m: {"k": Object.spec.x{name: "a"}}}}`},
	"object wrong in map()":       {Object, `Object{spec: Object.spec{containers: object.spec.template.spec.containers.filter(c, c.name == "a").map(c, Object.spec.item{name: c.name})}}`},
	"object wrong in sum":         {Object, `Object{spec: Object.spec{containers: [Object.spec.container{name: "a"}] + [Object.spec.container{name: "b"}]}}`},
	"object wrong root":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object.any{b: Object.any.c{}}}]`},
	"object numbers":              {Object, `Object{i: 1, d: 5.0, u: 3u, big: 9007199254740993}`},
	"object strange":              {Object, `Object{b: b"ab", t: timestamp("2026-01-02T03:04:05Z"), d: duration("1h"), n: null, t2: type(1)}`},
	"object optionals":            {Object, `Object{a: optional.of(1), b: optional.none(), ?c: optional.of("x"), ?d: optional.none()}`},
	"object literals":             {Object, `Object{l: [{"a": "b"}], e: [], m: {"a": {"b": "c"}}, em: {}}`},
	"object nested lists":         {Object, `Object{l: [[1], [2]], o: [Object.o{a: [1]}]}`},
	"object concat":               {Object, `Object{l: [1] + [2], m: object.spec.template.spec.containers + [{"name": "c"}]}`},
	"object from object":          {Object, `Object{a: object.spec, b: object.spec.template, c: object.metadata.labels, d: object.spec.nothing, e: object.spec.empty, f: object.spec.none}`},
	"object map bad key":          {Object, `Object{m: {1: "a"}}`},
	"object map bad keys":         {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{m: {1: "a"}}}]`},
	"object dyn key":              {Object, `Object{m: {dyn("a"): 1}, n: object.metadata.labels.transformMap(k, v, v)}`},
	"object variables record":     {Object, `Object{m: variables.typed, n: variables.names}`},
	"object repeated field":       {Object, `Object{a: 1, a: 2}`},
	"patch int":                   {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: 5}, JSONPatch{op: "add", path: "/a", value: -9007199254740991}, JSONPatch{op: "add", path: "/a", value: 9007199254740992}]`},
	"patch uint":                  {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: 5u}, JSONPatch{op: "add", path: "/a", value: 9007199254740993u}]`},
	"patch double":                {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [2.0, 0.5, 1e20, 1e21, 1e-7, -0.0, 1152921504606846976.0, 9.3e18]}]`},
	"patch bytes":                 {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: b"\x00\xff"}]`},
	"patch time":                  {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: timestamp("2026-01-02T03:04:05.5Z")}, JSONPatch{op: "add", path: "/a", value: duration("90s")}]`},
	"patch null":                  {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: null}, JSONPatch{op: "test", path: "/a"}]`},
	"patch lists":                 {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [[1], [2, 3]]}, JSONPatch{op: "add", path: "/a", value: {"a": {"b": [dyn("c"), dyn(1)]}}}]`},
	"patch int key":               {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: {1: "a"}}]`},
	"patch bool key":              {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: {true: "a"}}]`},
	"patch optional":              {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: optional.of([1])}]`},
	"patch optional none":         {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: optional.none()}]`},
	"patch quantity":              {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: quantity("1")}]`},
	"patch type":                  {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: type(1)}]`},
	"patch piece of object":       {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: object.spec}, JSONPatch{op: "add", path: "/a", value: object.spec.template.spec.containers}]`},
	"patch piece of params":       {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: params.data}]`},
	"patch concat pieces":         {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: object.spec.template.spec.containers + [{"name": "x"}]}]`},
	"patch concat big":            {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [9007199254740993] + [object.spec.big]}]`},
	"patch concat null":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [object.spec.nothing] + [object.spec.nothing]}]`},
	"patch object numbers":        {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{i: 9007199254740993, u: 3u, d: 0.5, s: object.spec.template}}]`},
	"patch object null":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{n: null}}]`},
	"patch object time":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{n: timestamp("2026-01-02T03:04:05Z")}}]`},
	"patch object bytes":          {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{n: b"ab"}}]`},
	"patch object list in a map":  {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{m: {"a": dyn(["x"]), "b": dyn([object.kind])}}}]`},
	"patch object empty in a map": {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{m: {"a": []}, n: Object.n{m: {}}}}]`},
	"patch object live in a list": {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{l: [object.metadata], m: {"a": object.metadata.labels}}}]`},
	"patch object nested loop":    {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{l: [["a"].map(x, x)]}}]`},
	"patch object nested literal": {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{l: [[1]]}}]`},
	"patch object list":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [Object.c{name: "a", n: 9007199254740993}]}]`},
	"patch object list concat":    {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: [Object.c{n: 9007199254740993}] + [Object.c{n: 1}]}]`},
	"patch object optional":       {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: Object{?l: object.?nosuch, m: optional.none()}}]`},
	"patch strings":               {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: "a\u2028<&>\U0001F600\u0000"}, JSONPatch{op: "add", path: "/a", value: "a,b".split(",")}]`},
	"patch empty":                 {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: []}, JSONPatch{op: "add", path: "/a", value: object.spec.empty}, JSONPatch{op: "add", path: "/a", value: Object{e: object.spec.empty}}]`},
	"patch duplicated":            {JSONPatch, `object.spec.template.spec.containers.filter(c, has(c.nosuch)).map(c, JSONPatch{op: "remove", path: "/x"})`},
	"key map":                     {anything, "object[object.metadata]"},
	"key list":                    {anything, "object.metadata[object.spec.template.spec.containers]"},
	"key empty list":              {anything, "object[object.spec.empty]"},
	"key null":                    {anything, "object[object.spec.nothing]"},
	"key optional map":            {anything, "object[?params.data]"},
	"key of a condition":          {anything, "(true ? object : params)[object.metadata]"},
	"key made map":                {anything, "object[object.metadata.labels.transformMap(k, v, v)]"},
	"key variable":                {anything, "object[variables.names]"},
	"key number":                  {anything, "object[object.spec.ratio]"},
	"key bool":                    {anything, "object[object.spec.flag]"},
	"patch dyn element":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: {"x": object.spec.nothing}}]`},
}

func testScope(t testing.TB, vars Vars, definitions []definition) *Scope {
	t.Helper()
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := env.Scope(vars)
	for _, d := range definitions {
		if err := s.Define(d.name, d.expr); err != nil {
			t.Fatalf("Define(%q, %q): %v", d.name, d.expr, err)
		}
	}
	return s
}

// TestDifferential compares value, error and cost with the in-tree plugin.
func TestDifferential(t *testing.T) {
	hammer.Alone(t)
	w := testWorld(t)
	scope := testScope(t, Vars{Params: true, Variables: true}, variablesForTests)
	for name, tt := range expressions {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			p, err := scope.Compile(tt.expr, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			up := newUpstream(t, variablesForTests, tt.expr, tt.want, true)
			if errs := up.evaluator.CompilationErrors(); len(errs) > 0 {
				t.Fatalf("in-tree: %v", errs)
			}
			wantVal, wantCost, wantErr, err := up.eval(t, ctx, w, MutationBudget)
			if err != nil {
				t.Fatal(err)
			}
			var want any
			if wantErr == nil {
				want, wantErr = inTreeResult(wantVal, tt.want)
			}
			// Twice, since outcomes of constants are kept.
			for range 2 {
				b := &Budget{Remaining: MutationBudget}
				got, err := run(p, ctx, scope.Bind(w.input(), b))
				if got, want := errText(err), errText(wantErr); got != want {
					t.Errorf("error = %q\n in-tree %q", got, want)
				}
				if got := MutationBudget - b.Remaining; got != wantCost {
					t.Errorf("cost = %d, in-tree %d", got, wantCost)
				}
				if err == nil && wantErr == nil {
					if val, ok := got.(ref.Val); ok {
						got = described(val)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("value (-in-tree +ours):\n%s", diff)
					}
				}
			}
		})
	}
}

// inTreeResult is what the in-tree patchers make of a value, up to the point
// where we hand it over.
func inTreeResult(v ref.Val, want Want) (any, error) {
	switch want {
	case Bool:
		return v != types.False, nil
	case Object:
		object := v.(*dynamic.ObjectVal)
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
		m, ok := object.Value().(map[string]any)
		if !ok {
			return nil, fmt.Errorf("invalid return type: %T", v)
		}
		return m, nil
	case JSONPatch:
		ops := []PatchOp{}
		for it := v.(traits.Lister).Iterator(); it.HasNext() == types.True; {
			elem := it.Next().(*mutation.JSONPatchVal)
			op := PatchOp{Op: elem.Op, Path: elem.Path, From: elem.From}
			if elem.Val != nil {
				if object, ok := elem.Val.(*dynamic.ObjectVal); ok {
					if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
						return nil, fmt.Errorf("type mismatch: %w", err)
					}
				}
				value, err := detour(elem.Val)
				if err != nil {
					return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
				}
				op.Value, op.HasValue = value, true
			}
			ops = append(ops, op)
		}
		return ops, nil
	}
	return described(v), nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// described is the type of a value and something that go-cmp can compare. Values
// that unfold to more than 64 KiB are all alike.
func described(v ref.Val) any {
	if s := (scale{left: 64 << 10}); !s.value(v) {
		return []any{v.Type().TypeName(), "more than 64 KiB"}
	}
	if tree, err := detour(v); err == nil {
		return []any{v.Type().TypeName(), tree}
	}
	return []any{v.Type().TypeName(), fmt.Sprint(v)}
}
