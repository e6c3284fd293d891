"""What `mtplx doctor` looks at. Works without a daemon and where mlx cannot be imported.

`probes` gathers facts, in child processes where an import may fail; `verdicts` judges them and is pure;
`checks` joins the two. It changes nothing.
"""
