"""The tables of messages and methods of Compute Engine, one module for each part of it.

Sources: Google's discovery document compute v1 (revision 20261106, Apache 2.0); the sentences are
ours. Permissions have the names that Google's IAM gives them.

A message is a line `Name: sentence`, followed by indented lines of its fields: `name`, or
`name:type`, with `!` behind what is output only. A type is string where none is said, bool, int32,
int64, double, bytes, map (of texts), map<Message>, any, a message, or `A|B` for an enum; `[]`
behind it is a list.

A method is a line `id | verb | path | query | body | answer | permission | sentence`. The path is
what follows `/compute/VERSION/`. `query` names parameters as fields are named; `@list`,
`@aggregated` and `@change` stand for those that all methods of the kind have; `!` behind one: it
must be there. The answer `X[]` is a
list of X, `X{}` an aggregated one: their messages follow from X.
"""
