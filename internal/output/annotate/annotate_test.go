package annotate

import (
	"bytes"
	"encoding/json"
	"testing"
)

var remarks = []Remark{
	{Rule: "a-rule", Level: "error", File: "dir/a,b: %.yaml", Line: 3, Column: 5, Message: "50% of\nit"},
	{Rule: "other", Level: "note", File: "b.yaml", Message: "whole file"},
	{Rule: "a-rule", Level: "warning", File: "b.yaml", Line: 1, Message: "hidden", Suppressed: "it is meant"},
}

func TestGitHub(t *testing.T) {
	var b bytes.Buffer
	if err := GitHub(&b, remarks); err != nil {
		t.Fatal(err)
	}
	want := "::error file=dir/a%2Cb%3A %25.yaml,line=3,col=5,title=a-rule::50%25 of%0Ait\n" +
		"::notice file=b.yaml,title=other::whole file\n"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestSARIF(t *testing.T) {
	var b bytes.Buffer
	if err := SARIF(&b, "mapd", "v1", []Rule{{"other", "Others."}, {"a-rule", "A."}}, remarks); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Rules []struct{ ID string }
				}
			}
			Results []struct {
				RuleID, Level string
				RuleIndex     int
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           *struct{ StartLine, StartColumn int }
					}
				}
				Suppressions []struct{ Justification string }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Tool.Driver.Rules) != 2 || len(log.Runs[0].Results) != 3 {
		t.Fatalf("got %s", b.String())
	}
	results := log.Runs[0].Results
	at := results[0].Locations[0].PhysicalLocation
	if results[0].RuleIndex != 1 || at.ArtifactLocation.URI != "dir/a,b:%20%25.yaml" || at.Region.StartLine != 3 || at.Region.StartColumn != 5 {
		t.Errorf("first: %+v", results[0])
	}
	if results[1].Level != "note" || results[1].Locations[0].PhysicalLocation.Region != nil || results[1].Suppressions != nil {
		t.Errorf("second: %+v", results[1])
	}
	if len(results[2].Suppressions) != 1 || results[2].Suppressions[0].Justification != "it is meant" {
		t.Errorf("third: %+v", results[2])
	}
}
