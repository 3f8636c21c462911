package main

import "errors"

// known has texts of earlier questions, by their Refs. With each key that a user types, only one
// text changes; the page sends only the Refs of the others.
type known struct {
	texts map[int]string
	bytes int // of all of them
}

// errUnknownRef is the error for a Ref whose text was dropped. The page then sends the question
// again with all texts.
var errUnknownRef = errors.New("a text is not known any more")

// resolve fills in the texts of which a question has only the Refs, and stores the texts that have
// a Ref. If it stores too many bytes, it drops the texts that this question does not use.
func (k *known) resolve(lists ...[]Text) error {
	for _, list := range lists {
		for i := range list {
			t := &list[i]
			switch {
			case t.Ref == 0:
			case t.Text != "":
				k.keep(t.Ref, t.Text)
			default:
				text, ok := k.texts[t.Ref]
				if !ok {
					return errUnknownRef
				}
				t.Text = text
			}
		}
	}
	if k.bytes > 2*maxTexts {
		*k = known{}
		for _, list := range lists {
			for _, t := range list {
				if t.Ref != 0 {
					k.keep(t.Ref, t.Text)
				}
			}
		}
	}
	return nil
}

func (k *known) keep(ref int, text string) {
	if k.texts == nil {
		k.texts = map[int]string{}
	}
	k.bytes += len(text) - len(k.texts[ref])
	k.texts[ref] = text
}

func (q *Question) texts() [][]Text         { return [][]Text{q.Documents, q.Objects, q.Old} }
func (q *OrdersQuestion) texts() [][]Text   { return q.Question.texts() }
func (q *LanguageQuestion) texts() [][]Text { return [][]Text{q.Documents, q.Objects} }
func (q *MigrateQuestion) texts() [][]Text  { return [][]Text{q.Documents} }
func (q *VerifyQuestion) texts() [][]Text   { return [][]Text{q.Documents} }
