"""A page in Qt's Chromium, in a window of a size: its document as it is in the end to stdout, its console to stderr.

Run as a process of its own: `python webengine.py FILE WIDTH HEIGHT`. Needs PyQt6-WebEngine.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QTWEBENGINE_CHROMIUM_FLAGS", "--disable-gpu" + (" --no-sandbox" if os.getuid() == 0 else ""))

from PyQt6.QtCore import QTimer, QUrl
from PyQt6.QtWebEngineCore import QWebEnginePage
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWidgets import QApplication

SETTLED_MS = 1500


class Heard(QWebEnginePage):
    """Tells of what scripts complain of."""

    def javaScriptConsoleMessage(self, level: object, message: str, line: int, source: str) -> None:
        print(f"CONSOLE {message} ({source}:{line})", file=sys.stderr)


def main(file: str, width: str, height: str) -> None:
    app = QApplication(sys.argv)
    view = QWebEngineView()
    page = Heard(view)
    view.setPage(page)
    view.resize(int(width), int(height))

    def told(html: str) -> None:
        print(html)
        app.quit()

    page.loadFinished.connect(lambda: QTimer.singleShot(SETTLED_MS, lambda: page.toHtml(told)))
    view.load(QUrl.fromLocalFile(file))
    view.show()
    app.exec()


if __name__ == "__main__":
    main(*sys.argv[1:])
