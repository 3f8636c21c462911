// The keys of the editors, for the list of shortcuts. Mod is Command on a Mac and Ctrl
// elsewhere.

export interface Binding {
  key: string
  text: string
}

export const bindings: readonly Binding[] = [
  {key: "Ctrl-Space", text: "Complete"},
  {key: "Mod-k Mod-i", text: "Show type and documentation of the word at the cursor"},
  {key: "F12", text: "Go to the definition of a variable (also Mod-b and Mod-click)"},
  {key: "Mod-.", text: "Quick fixes of the line"},
  {key: "F8", text: "Go to the next finding"},
  {key: "Mod-Shift-m", text: "List the findings"},
  {key: "Shift-Alt-f", text: "Format the expressions"},
  {key: "Mod-f", text: "Find and replace"},
  {key: "Mod-/", text: "Comment lines, or take the comment away"},
  {key: "Mod-z", text: "Undo (redo: Mod-Shift-z, or Mod-y)"},
  {key: "Tab", text: "Indent, or accept a completion; Shift-Tab takes indentation away"},
  {key: "Escape Tab", text: "Leave the editor: press Escape, then Tab"},
]
