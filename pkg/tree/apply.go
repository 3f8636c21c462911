package tree

// Apply applies a patch to doc and returns the new version.
func Apply(doc any, ops []Op) (any, error) { return doc, nil }
