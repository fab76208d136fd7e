"""Containers killed at random moments of a turn of tools: `python -m dev.kills --count 200`.

`main` is what the containers serve, `kill` kills one and has others finish its turn, `check` says
what is wrong with a turn, `report` counts and writes it down.
"""
