// The keys of the editors, for the list of shortcuts. Ctrl is Command on a Mac.

export interface Binding {
  key: string
  help: string
}

export const bindings: readonly Binding[] = [
  {key: "Ctrl+Space", help: "Complete; Tab or Enter accepts"},
  {key: "Ctrl+K Ctrl+I", help: "Show type and documentation of the word at the cursor"},
  {key: "F12", help: "Go to the definition of a variable (also Ctrl+B, and Ctrl and a click)"},
  {key: "Ctrl+.", help: "Choose a quick fix for the line"},
  {key: "F8", help: "Go to the next finding"},
  {key: "Ctrl+Shift+M", help: "List the findings"},
  {key: "Alt+Shift+F", help: "Format the expressions"},
  {key: "Ctrl+F", help: "Find and replace"},
  {key: "Ctrl+/", help: "Comment lines, or take the comment away"},
  {key: "Ctrl+Z", help: "Undo (Ctrl+Shift+Z and Ctrl+Y: redo)"},
  {key: "Tab", help: "While you type: indent; Shift+Tab takes indentation away. Before, and after Escape: leave the editor"},
]
