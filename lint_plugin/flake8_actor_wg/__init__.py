"""flake8 plugin: reports what `actor-wg migrate` would change."""
