# Needs make, a Python of 3.9 or newer, the Python of firebase.json's runtime, and Node.js 20 or
# newer. The rest is installed into this folder.
PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help setup dev test verify format

help: ## Show what there is
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: ## Install what is pinned (the others do so, too)
	@$(PYTHON) -m dev.setup

dev: ## Start the local stack and print lines that stream and resume a turn
	@$(PYTHON) -m dev.launch

test: ## Run the tests; ARGS='-k name' and the like go to pytest
	@$(PYTHON) -m dev.verify tests $(ARGS)

verify: ## Check format, lint, types and tests, as CI does
	@$(PYTHON) -m dev.verify all $(ARGS)

format: ## Put the code into shape
	@$(PYTHON) -m dev.verify fix
