"""Forms that many texts share: a compiler's error, and a file that is included and not there, in their languages.

A text of the catalogue that has such a form gives only what is its own; the rest stands here once. Pure.
"""

from __future__ import annotations

from builddoctor.core.word import Word
from builddoctor.diagnose.log_lines import CUT_OFF


class TextForm(Word):
    """What the pattern of an entry is."""

    LINE = "line"
    """searched as it stands"""
    COMPILER_ERROR = "compiler-error"
    """a compiler's message, from the word error on; where it stands is in ``file`` and ``line``, or was cut away"""
    LOCATED_ERROR = "located-error"
    """the same, and never without where it stands"""
    MISSING_FILE = "missing-file"
    """the name of a file that is included and that the compiler does not find, as ``file``"""


_PLACE = (
    r"""(?!configure:\d)(?P<file>(?:[A-Za-z]:)?[^\s:()"'<>|]{1,300}|[A-Za-z]:[^:"'<>|]{1,300}?)"""
    r"""(?::(?P<line>\d{1,7})(?::\d{1,5})?|\((?P<line_2>\d{1,7})(?:,\d{1,5}){0,3}\))(?: \(col\. \d+\))? ?: """
)
_ERROR = (
    r"(?:(?:fatal |catastrophic )?(?:[Ee]rror|erro)"
    r"|(?:致命|致命的|schwerwiegender |фатальная )?(?:Fehler|错误|錯誤|erreur|ошибка|エラー|오류|fout|błąd))"
    r"(?! MSB\d)(?: [A-Z]{1,4}\d{1,5}| #[\d-]{1,8}D?)?(?: fatale?)?(?: ?: ?|\uff1a)"
)
_MISSING = (
    r"(?:[Ee]rror|[Ff]ehler|错误|錯誤|erreur fatale|erreur|irreversibile|errore|error fatal|erro fatal|ошибка"
    r"|エラー|오류|fout|błąd|hata)(?: C1083: .{1,60}?)?(?: ?[:\uff1a]|(?<=fatal error)) ?"
    r"(?:include file )?['\"\u2018«“]?"
)
_NOT_THERE = (
    "No such file or directory",
    "No file or directory",
    "no such file",
    "file not found",
    "not found",
    "Datei oder Verzeichnis nicht gefunden",
    "没有那个文件或目录",
    "沒有此一檔案或目錄",
    "File o directory non esistente",
    "Aucun fichier ou dossier de ce type",
    "Aucun fichier ou dossier de ce nom",
    "No existe el archivo o el directorio",
    "No existe el fichero o el directorio",
    "Arquivo ou diretório inexistente",
    "Arquivo ou diretório não encontrado",
    "Ficheiro ou pasta inexistente",
    "Нет такого файла или каталога",
    "そのようなファイルやディレクトリはありません",
    "그런 파일이나 디렉터리가 없습니다",
    "Bestand of map bestaat niet",
    "Nie ma takiego pliku ani katalogu",
    "Böyle bir dosya ya da dizin yok",
)
_EDG = "cannot open source file"


def pattern_of(form: TextForm, own: str) -> str:
    """The whole pattern of a text: ``own`` is what its entry gives."""
    if form is TextForm.COMPILER_ERROR:
        return rf"^(?:\d{{1,4}}>)?(?:{_PLACE})?{_ERROR}(?P<what>{own})"
    if form is TextForm.LOCATED_ERROR:
        return rf"^(?:\d{{1,4}}>)?{_PLACE}{_ERROR}(?P<what>{own})"
    if form is TextForm.MISSING_FILE:
        there = "|".join(_NOT_THERE)
        closing = r"""(?: ?[:\uff1a] ?|['"\u2019»”] ?[:\uff1a]? ?)"""
        # A copy may have lost where it was said: what is left quotes the line of the source.
        quoted = rf"^No such file or directory {{1,9}}# ?include {{1,4}}[<\"](?P<file_3>{own})[>\"]"
        return rf'{_MISSING}(?P<file>{own}){closing}(?:{there})|{_EDG} "(?P<file_2>{own})"|{quoted}'
    return own


def triggers_of(form: TextForm) -> tuple[str, ...]:
    """Words of which such a line holds one; none where the entry has its own."""
    return (CUT_OFF, *_NOT_THERE[1:], _EDG) if form is TextForm.MISSING_FILE else ()
