"""`python -m demo.picture`: writes docs/images/page.svg from the page of a running demo.

The file has two screenshots, of the light and of the dark theme; the reader's theme decides which
one is visible. One SVG contains both as pictures of 64 colours.
"""

import base64
import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

import replica
from browser import chromium
from controlplane.build import programs_folder
from demo.stage import open_page, temporary_stage
from demo.story import tell
from demo.views import Narrator

PICTURE = replica.ROOT / "docs" / "images" / "page.svg"
TITLE = "The view Cluster of the page: nodes by zone, coloured by requested cpu"
WIDTH, HEIGHT = 1100, 660
COLOURS = 64

TEXT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>.dark {{ display: none }}
@media (prefers-color-scheme: dark) {{ .light {{ display: none }} .dark {{ display: inline }} }}
</style>
{images}
</svg>
"""


def main() -> int:
    """Play the demo, and write the picture of its page."""
    programs_folder()
    with temporary_stage(None) as stage:
        tell(stage, Narrator())
        _, address = open_page(stage)
        with chromium() as browser:
            size = {"width": WIDTH, "height": HEIGHT}
            page = browser.new_context(viewport=size).new_page()  # type: ignore[arg-type] # a TypedDict
            page.goto(address)
            page.get_by_text("of cpu requested").wait_for()
            page.get_by_label("Find a node").fill("node-09")
            page.keyboard.press("Enter")
            page.get_by_role("heading", name="node-09").wait_for()
            page.evaluate("scrollTo(0, 0)")
            images = [_image(page, theme) for theme in ("light", "dark")]
    text = TEXT.format(width=WIDTH, height=HEIGHT, title=TITLE, images="\n".join(images))
    PICTURE.write_text(text)
    sys.stdout.write(f"{PICTURE.relative_to(Path.cwd())}: {len(text) >> 10} KiB\n")
    return 0


def _image(page: Page, theme: str) -> str:
    """Return the SVG element of a screenshot in this theme."""
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.wait_for_function("new Promise(done => requestAnimationFrame(() => done(true)))")
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = io.BytesIO()
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    source = f"data:image/png;base64,{data}"
    return f'<image class="{theme}" width="{WIDTH}" height="{HEIGHT}" href="{source}"/>'


if __name__ == "__main__":
    sys.exit(main())
