package main

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/mapd-project/mapd/internal/author/language"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// The types of this file are what the page and the program say to each other.
// web/app/src/api.ts has them in TypeScript.
//
//go:generate go test . -run ^(TestContract|TestCatalogue)$ -update

// A Question is what to evaluate. Only Objects may be left out besides what its
// fields say: then documents are checked.
type Question struct {
	// Documents are policies, bindings and whatever they need.
	Documents []Text `json:"documents"`
	Objects   []Text `json:"objects"`

	Kubernetes string `json:"kubernetes,omitempty"` // a minor; empty: the newest
	Namespace  string `json:"namespace,omitempty"`  // of objects that name none; empty: default
	Unbound    bool   `json:"unbound,omitempty"`    // bind policies without a binding to everything

	// Old are the objects before an update.
	Old         []Text                    `json:"old,omitempty"`
	Operation   string                    `json:"operation,omitempty"` // empty: CREATE, or UPDATE with Old
	Subresource string                    `json:"subresource,omitempty"`
	DryRun      bool                      `json:"dryRun,omitempty"`
	User        authenticationv1.UserInfo `json:"user,omitzero"` // empty: an administrator
}

// A Text is YAML or JSON with a name, which errors call it by.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Ref stands for Text in later questions, which have a Ref and no Text then. A program that
	// has forgotten it answers with the error errUnknownRef.
	Ref int `json:"ref,omitempty"`
}

// An EvaluateQuestion is the parameter of evaluate.
type EvaluateQuestion struct {
	Question
	Trace  bool `json:"trace,omitempty"`  // Result.Trace is wanted
	WhyNot bool `json:"whyNot,omitempty"` // Result.WhyNot is wanted
	// Only are the parts of a Result that are wanted, of textPart, diffPart, patchPart, stepsPart
	// and summaryPart, besides Name, Verdict and why it is
	// denied. Nil: all of them.
	Only []string `json:"only,omitempty"`
}

// The parts of a Result that an EvaluateQuestion may ask for.
const (
	textPart    = "text" // Text, Lines and Removed
	diffPart    = "diff"
	patchPart   = "patch"
	stepsPart   = "steps"
	summaryPart = "summary"
)

// An Answer has results, one for each object in their order, or errors of the documents. It
// has both if policies are at fault: then the results are those of the others.
type Answer struct {
	Errors []Fault `json:"errors,omitempty"`
	// LeftOut are the documents with errors and the bindings of such policies, without which the
	// results are.
	LeftOut []string `json:"leftOut,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	// Unbound are the policies that have no effect, since they have no binding. No note says it.
	Unbound []string `json:"unbound,omitempty"`
	Results []Result `json:"results,omitempty"`
	// Limits are there if a trace was asked for.
	Limits *Limits `json:"limits,omitempty"`
}

// Limits are what may cost how much, in units of CEL.
type Limits struct {
	Expression int64 `json:"expression"` // an expression or a variable
	Mutation   int64 `json:"mutation"`   // the expression of a mutation with its variables
	Conditions int64 `json:"conditions"` // all conditions of a policy for a binding and a parameter
}

// A Fault is an error and where it is. Lines and columns count from 1; 0 means that
// they are not known.
type Fault struct {
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
}

// A Result is what policies made of one object. If Error is set, it could not be
// evaluated.
type Result struct {
	Name    string        `json:"name,omitempty"`
	Error   *Fault        `json:"error,omitempty"`
	Verdict string        `json:"verdict,omitempty"` // changed, unchanged, no match or denied
	Refusal string        `json:"refusal,omitempty"` // why it was denied
	Text    string        `json:"text,omitempty"`    // the object after the policies
	Lines   []Line        `json:"lines,omitempty"`   // those of Text that policies changed
	Removed []string      `json:"removed,omitempty"` // the fields that they removed
	Patch   []tree.Op     `json:"patch,omitempty"`
	Diff    []mapd.Change `json:"diff,omitempty"` // without the values of Secrets
	Steps   []Step        `json:"steps,omitempty"`
	Summary string        `json:"summary,omitempty"`
	// FilledIn are fields that a server fills in after the policies.
	FilledIn []string `json:"filledIn,omitempty"`
	// Defaults are those that it fills into what policies added.
	Defaults []string `json:"defaults,omitempty"`
	// Missing are fields that a server misses in the object.
	Missing  []string `json:"missing,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // those that a server sends to the client

	Trace  []explain.Traced `json:"trace,omitempty"`
	WhyNot []explain.Reason `json:"whyNot,omitempty"`
}

// A Line is where a field begins in Text that a mutation wrote. A field that several
// wrote has a Line for each, in their order.
type Line struct {
	Line     int    `json:"line"` // from 1
	Last     int    `json:"last"` // where its value ends
	Path     string `json:"path"` // such as spec.containers[0].image
	Stage    string `json:"stage"`
	Policy   string `json:"policy"`
	Binding  string `json:"binding,omitempty"`
	Param    string `json:"param,omitempty"`
	Mutation int    `json:"mutation"`
}

// A Step is one thing that a policy did, or why it did nothing.
type Step struct {
	Stage    string   `json:"stage"`
	Policy   string   `json:"policy"`
	Binding  string   `json:"binding,omitempty"`
	Param    string   `json:"param,omitempty"`
	Mutation int      `json:"mutation"` // -1: the step is about the whole policy
	Outcome  string   `json:"outcome"`
	Paths    []string `json:"paths,omitempty"`
	Reason   string   `json:"reason,omitempty"` // why it was skipped
	Error    string   `json:"error,omitempty"`
	Cost     int64    `json:"cost,omitempty"` // in units of CEL
}

// An OrdersQuestion is the parameter of orders.
type OrdersQuestion struct {
	Question Question `json:"question"`
	Limit    int      `json:"limit,omitempty"` // how many orders are run for an object at most
}

// An OrdersAnswer says what other orders of the policies make of each object.
type OrdersAnswer struct {
	Errors  []Fault  `json:"errors,omitempty"`
	Objects []Orders `json:"objects,omitempty"`
}

// Orders are those of the policies that an object meets.
type Orders struct {
	Name        string            `json:"name,omitempty"`
	Error       *Fault            `json:"error,omitempty"`
	Policies    int               `json:"policies"` // how many invocations of policies the object meets
	Touching    int               `json:"touching"` // how many of them touch others
	Run         int               `json:"run"`      // how many orders were run
	Of          string            `json:"of"`       // how many there are, a number of any length
	Whole       bool              `json:"whole"`    // those that were run stand for all
	Summary     string            `json:"summary"`
	Differences []OrderDifference `json:"differences,omitempty"`
}

// An OrderDifference is about policies whose order matters ("order"), whose result another update
// changes or refuses ("update"), or that undo each other ("ping-pong").
type OrderDifference struct {
	Kind     string   `json:"kind"`
	Policies []string `json:"policies,omitempty"`
	Other    []string `json:"other,omitempty"` // another order of Policies
	// Changes are from the result of Policies to that of Other, or from the result to what an
	// update makes of it.
	Changes []mapd.Change `json:"changes,omitempty"`
	// Denied says why it is refused in the order of Policies and in Other, "" if it is not.
	Denied []string `json:"denied,omitempty"`
	Next   string   `json:"next,omitempty"` // what another update would do
	Text   string   `json:"text"`           // all of it in words
}

// A MigrateQuestion is the parameter of migrate.
type MigrateQuestion struct {
	Documents []Text `json:"documents"`
}

// A MigrateAnswer is what mapd migrate gatekeeper says and writes.
type MigrateAnswer struct {
	Errors  []Fault  `json:"errors,omitempty"`
	Entries []Entry  `json:"entries,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Summary string   `json:"summary,omitempty"`
	Files   []Text   `json:"files,omitempty"`
}

// An Entry says what became of one of Gatekeeper's mutators.
type Entry struct {
	Name    string   `json:"name"`
	Verdict string   `json:"verdict"` // exact, differs, engine-only or refused
	Notes   []string `json:"notes,omitempty"`
	File    string   `json:"file,omitempty"`
	Policy  string   `json:"policy,omitempty"`
	With    []string `json:"with,omitempty"` // other mutators in the policy
}

// A VerifyQuestion is the parameter of verify.
type VerifyQuestion struct {
	Documents []Text `json:"documents"`
	Seed      uint64 `json:"seed,omitempty"`
	Count     int    `json:"count,omitempty"` // how many objects for each comparison
}

// A VerifyAnswer has the comparisons of mutators with their policies.
type VerifyAnswer struct {
	Errors      []Fault      `json:"errors,omitempty"`
	Seed        uint64       `json:"seed"`
	Count       int          `json:"count"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
}

// A Comparison is one of mutators with their policies.
type Comparison struct {
	verify.Comparison
	Unexpected bool   `json:"unexpected"`     // there is a difference that was not known
	Summary    string `json:"summary"`        // all of it in a line
	Text       string `json:"text,omitempty"` // the first difference in words
}

// A SuiteAnswer has the files of a suite for mapd test.
type SuiteAnswer struct {
	Errors []Fault `json:"errors,omitempty"`
	Files  []Text  `json:"files,omitempty"`
}

// A LanguageQuestion is the parameter of diagnose.
type LanguageQuestion struct {
	Documents []Text `json:"documents"`
	// Objects are those of the evaluation. They have other names than documents.
	Objects    []Text `json:"objects,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"` // a minor; empty: the newest
}

// A DocumentQuestion is the parameter of format.
type DocumentQuestion struct {
	LanguageQuestion
	Name string `json:"name"` // of one of Documents or Objects
}

// A PositionQuestion is the parameter of complete, hover and definition.
type PositionQuestion struct {
	DocumentQuestion
	language.Position
}

// A RangeQuestion is the parameter of actions.
type RangeQuestion struct {
	DocumentQuestion
	Range language.Range `json:"range"`
}
