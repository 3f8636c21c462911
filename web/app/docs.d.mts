export function docs(options: {root: string; out: string; blocks: object; csp: string}): void
