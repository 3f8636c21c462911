package lsp

import (
	"encoding/json"

	"github.com/mapd-project/mapd/internal/author/language"
)

// These are the messages of the Language Server Protocol 3.17, as far as the server has a
// use for them: https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/

type initializeParams struct {
	RootURI          string           `json:"rootUri"`
	WorkspaceFolders workspaceFolders `json:"workspaceFolders"`
	Capabilities     struct {
		Workspace struct {
			DidChangeWatchedFiles struct {
				DynamicRegistration bool `json:"dynamicRegistration"`
			} `json:"didChangeWatchedFiles"`
		} `json:"workspace"`
	} `json:"capabilities"`
}

type workspaceFolder struct {
	URI string `json:"uri"`
}

// workspaceFolders are those of a list that name one. Neovim 0.7 writes an empty list for no
// folder, as in {"added": [{"uri": "file:///a", "name": "a"}], "removed": [[]]}.
type workspaceFolders []workspaceFolder

func (f *workspaceFolders) UnmarshalJSON(data []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*f = nil
	for _, one := range all {
		var folder workspaceFolder
		if json.Unmarshal(one, &folder) == nil && folder.URI != "" {
			*f = append(*f, folder)
		}
	}
	return nil
}

type changeFoldersParams struct {
	Event struct {
		Added   workspaceFolders `json:"added"`
		Removed workspaceFolders `json:"removed"`
	} `json:"event"`
}

type textDocument struct {
	URI     string `json:"uri"`
	Version int    `json:"version"`
	Text    string `json:"text"`
}

// documentParams are those of messages about a document, or a place in it.
type documentParams struct {
	TextDocument textDocument      `json:"textDocument"`
	Position     language.Position `json:"position"`
	Range        language.Range    `json:"range"`
	Changes      []language.Change `json:"contentChanges"`
	Context      struct {
		Only               []string `json:"only"`
		TriggerCharacter   string   `json:"triggerCharacter"`
		IncludeDeclaration bool     `json:"includeDeclaration"`
	} `json:"context"`
	NewName string `json:"newName"`
}

type watchedFilesParams struct {
	Changes []struct {
		URI  string `json:"uri"`
		Type int    `json:"type"` // 3: deleted
	} `json:"changes"`
}

type cancelParams struct {
	ID json.RawMessage `json:"id"`
}

type object = map[string]any

// capabilities is what the server says of itself.
func capabilities(version string) object {
	return object{
		"capabilities": object{
			"positionEncoding":           "utf-16",
			"textDocumentSync":           object{"openClose": true, "change": 2, "save": true},
			"completionProvider":         object{"triggerCharacters": []string{".", "{", " "}},
			"documentSymbolProvider":     true,
			"referencesProvider":         true,
			"renameProvider":             true,
			"signatureHelpProvider":      object{"triggerCharacters": []string{"(", ","}},
			"hoverProvider":              true,
			"definitionProvider":         true,
			"documentFormattingProvider": true,
			"codeActionProvider":         object{"codeActionKinds": []string{quickFix, fixAll}},
			"workspace":                  object{"workspaceFolders": object{"supported": true, "changeNotifications": true}},
		},
		"serverInfo": object{"name": "mapd", "version": version},
	}
}

// The kinds of actions.
const (
	quickFix = "quickfix"
	fixAll   = "source.fixAll.mapd"
)

type diagnostic struct {
	Range    language.Range `json:"range"`
	Severity int            `json:"severity"`
	Code     string         `json:"code,omitempty"`
	Source   string         `json:"source"`
	Message  string         `json:"message"`
}

type publishParams struct {
	URI         string       `json:"uri"`
	Version     *int         `json:"version,omitempty"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

type markup struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

func markdown(text string) *markup {
	if text == "" {
		return nil
	}
	return &markup{"markdown", text}
}

type completionItem struct {
	Label         string        `json:"label"`
	Kind          int           `json:"kind"`
	Detail        string        `json:"detail,omitempty"`
	Documentation *markup       `json:"documentation,omitempty"`
	SortText      string        `json:"sortText"`
	TextEdit      language.Edit `json:"textEdit"`
}

type hover struct {
	Contents *markup        `json:"contents"`
	Range    language.Range `json:"range"`
}

type location struct {
	URI   string         `json:"uri"`
	Range language.Range `json:"range"`
}

type documentSymbol struct {
	Name      string           `json:"name"`
	Detail    string           `json:"detail,omitempty"`
	Kind      int              `json:"kind"`
	Range     language.Range   `json:"range"`
	Selection language.Range   `json:"selectionRange"`
	Children  []documentSymbol `json:"children,omitempty"`
}

type codeAction struct {
	Title       string       `json:"title"`
	Kind        string       `json:"kind"`
	Diagnostics []diagnostic `json:"diagnostics,omitempty"`
	Edit        object       `json:"edit"`
}
