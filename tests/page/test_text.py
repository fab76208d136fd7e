"""The page's growing text, in Chromium: whatever is shown after what, it reads as it was given."""

from __future__ import annotations

import subprocess

import pytest
from playwright.sync_api import Browser

from dev import node

_RANDOM_TEXTS = """() => {
  const element = document.createElement('div');
  const growing = new text.GrowingText(element);
  const shown = () => [...element.children].map(block => block.textContent).join('\\n');
  const pieces = ['a word ', '\\n', '\\n\\n', 'é🌍', 'x'.repeat(900), 'one\\ntwo\\nthree'];
  const pick = count => Math.floor(Math.random() * count);
  let now = '';
  for (let round = 0; round < 3000; round += 1) {
    const cut = pick(8) === 0 ? now.slice(0, pick(now.length + 1)) : now;
    now = pick(50) === 0 ? '' : cut + pieces[pick(pieces.length)];
    growing.show(now);
    // The newline at a block's end is the end of the block.
    if (![now, now.replace(/\\n$/, '')].includes(shown())) return {now, shown: shown()};
  }
  return null;
}"""
_TOUCHES_ONE_BLOCK = """async () => {
  const element = document.createElement('div');
  const growing = new text.GrowingText(element);
  let now = 'line\\n'.repeat(5000);
  growing.show(now);
  const touched = new Set();
  const observer = new MutationObserver(records => {
    for (const record of records) touched.add(record.target);
  });
  observer.observe(element, {subtree: true, childList: true, characterData: true});
  for (let token = 0; token < 100; token += 1) growing.show(now += 'word ');
  await Promise.resolve();
  return touched.size;
}"""


@pytest.fixture(scope="module")
def script() -> str:
    """The module on its own, as a global `text`."""
    bundle = ["--bundle", "--format=iife", "--global-name=text"]
    esbuild = node.PAGE / "node_modules" / "esbuild" / "bin" / "esbuild"
    return subprocess.run(
        [node.locate(), esbuild, "src/text.ts", *bundle],
        cwd=node.PAGE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_any_text_after_any_other_reads_as_given(chromium: Browser, script: str) -> None:
    """Tokens, newlines, rewinds, empty texts, 3,000 of them in a random order."""
    with chromium.new_page() as page:
        page.evaluate(f"{script}; window.text = text;")
        assert page.evaluate(_RANDOM_TEXTS) is None


def test_a_token_touches_the_last_block_only(chromium: Browser, script: str) -> None:
    """Or every paint of a long answer would cost more than the one before."""
    with chromium.new_page() as page:
        page.evaluate(f"{script}; window.text = text;")
        assert page.evaluate(_TOUCHES_ONE_BLOCK) <= 3
