"""Mistakes as exceptions."""


class Error(Exception):
    """Broken rules of graphs, documents, plans and calls.

    `diagnostics` holds all of them. `rule`, `node`, `tensor`, `attribute`, `seen`, `allowed`,
    `fix`, `file` and `line` are those of the first; `where` is "file:line", the line of the user's
    own call or of the document.
    """

    def __init__(self, diagnostics):
        super().__init__("\n".join(str(d) for d in diagnostics))
        self.diagnostics = list(diagnostics)
        first = self.diagnostics[0]
        self.rule, self.node, self.tensor = first.rule, first.node, first.tensor
        self.attribute, self.seen, self.allowed = first.attribute, first.seen, first.allowed
        self.fix, self.file, self.line = first.fix, first.file, first.line

    @property
    def where(self):
        return f"{self.file}:{self.line}" if self.line else self.file

    def __reduce__(self):  # diagnostics do not pickle; the message and the place do
        return RuntimeError, (str(self),)
