"""Refusals of the whole room: what is said about each code, and nowhere else.

Checks raise ``refusal(code, …)`` with the facts of the case. Nothing reads the sentences back, so
any of them can be reworded. A code may be refused in several ways: what stands behind a colon
tells them apart here and is no part of the error's code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

from timbermark.errors import InputError, TimbermarkError
from timbermark.ownership.encoding import FOREIGN

Error = TypeVar("Error", bound=TimbermarkError)

_PLEASE = (
    "answer with one label or number for each row, as predict does, or with one score for each "
    "class of the mark, as predict_proba does."
)
_TARGETS = "label_map does not give each of its labels a class of the mark of its own."
_RESTORE = "restore it from a backup, or begin a new one with another name."
_GET_AGAIN = "get the pack again from where it came."
_STAMP = "ask an authority for a stamp of this claim."
_URL = "as in https://host/invocations."
_STATUS = "answered with status {status}{said}."
_FEWER = "ask fewer questions at once, as in batch=1."
_PROTOCOL = 'does it speak this protocol? A path to the answers is given as answer="results".'
_MOST_NAMES, _MOST_LABELS = 20, 5

# By code: the message, the hint, and the parameter that they speak of, if there is one.
REFUSALS: dict[str, tuple[str, ...]] = {
    # Checks of served models
    "check.at-least": (
        "at_least={at_least!r} is not a number of bits above 0.",
        "64 bits convince anyone.",
        "at_least",
    ),
    "check.beyond-mark": (
        "at_least={at_least:g} is more than the mark is worth, {worth:.1f} bits.",
        "ask for less, or make a stronger mark.",
        "at_least",
    ),
    "check.other-library": (
        "{served} is a model of {found}, but the mark is of one of {wanted}.",
        "check the names of both files; timbermark verify asks any model.",
        "suspect",
    ),
    "check.no-file": (
        "{served} is not a model file, so its trees cannot be compared.",
        "leave the unmarked model out, or give the served model's file.",
        "unmarked",
    ),
    "check.other-unmarked": (
        "{unmarked} is not the model that the mark was made for.",
        "give the model as it was before marking; timbermark inspect shows digests.",
        "unmarked",
    ),
    # Columns
    "columns.by-hand": (
        "{parameter} are not the {features} names of the mark in some order.",
        "name each feature of the mark once, in the order of the suspect's columns.",
        "{parameter}",
    ),
    "columns.by-hand:unfit": (
        "feature_names are for a mark that names its columns and a suspect that does not.",
        "leave them out: columns with names are matched by these, others in the mark's order.",
        "feature_names",
    ),
    "columns.strange": (
        "The suspect wants columns that the mark does not have: {shown}.",
        "is it a model of the same data? In Python a function can compute columns.",
    ),
    "columns.count": (
        "The suspect takes {wanted} columns, the mark's rows have {features}.",
        "is it a model of the same data? In Python a function can choose the columns.",
    ),
    "columns.count:named": (
        "{named} columns are named, and the mark has {features} features.",
        "name one column for each feature of the mark.",
        "columns",
    ),
    "columns.chosen": (
        "The columns are called neither as in the mark nor with one word and the numbers from 0"
        " or 1 on: whoever may choose among a server's columns can make any model agree with "
        "the mark.",
        "give names like x1, x2, …, x10, or ask in Python through a function that renames the "
        "columns; the verdict then says that code was asked.",
        "columns",
    ),
    # Protocols
    "protocol.option": (
        "{option} is no option of protocol={protocol!r}.",
        "it takes {known}.",
        "{option}",
    ),
    "template:places": (
        "The template of the request does not say in one place where the questions go.",
        'give a body with one of {words}, as in \'{{"rows": "$rows"}}\'.',
        "body",
    ),
    "protocol": (
        "The address {url} does not tell the protocol.",
        'name it: {known}, as in protocol="mlflow".',
        "protocol",
    ),
    # Disputes
    "dispute.same-claim": ("Both sides bring the same claim.", "give the other party's."),
    "dispute.guard": (
        "The symbols of a guard's mark come from its owner's key, so that it decides no dispute.",
        "bring the mark of a model.",
    ),
    # Endpoints
    "url": ("{url!r:.80} is no address of an endpoint.", _URL),
    "url:not-sound": ("The address of the endpoint is not a sound one.", _URL),
    "url.credentials": (
        "The address of the endpoint holds a name or a password.",
        "give token=… or headers=… instead: addresses are written down.",
    ),
    "option.number": (
        "{name}={value!r} is no {kind} from {low:g} to {high:g}.",
        "leave it out.",
        "{name}",
    ),
    "option.unknown": ("{name}={value!r} is not known.", "use one of {known}.", "{name}"),
    "names": (
        "{what} is no list of distinct labels or texts.",
        "give each once, in order.",
        "{what}",
    ),
    "batch.one": (
        "batch={batch} does not fit a template for one question.",
        "use $rows or $records, or leave it out.",
        "batch",
    ),
    "template:no-json-value": (
        "The template of the request cannot be written as JSON.",
        'as in body={{"rows": "$rows"}}.',
        "body",
    ),
    "headers.unsendable": (
        "headers or the token hold something that cannot be sent{where}.",
        'give printable ASCII texts on one line, as in headers={{"X-Api-Key": "…"}}.',
        "headers",
    ),
    "headers.own": ("The header {name} is set by the protocol itself.", "leave it out.", "headers"),
    # Servers
    # Each message ends the sentence "The server …".
    "server:waits": ("asks to wait for {seconds:.0f} s.", "come back then."),
    "server:timeout": (
        "did not answer within {seconds:g} s.",
        "allow more with timeout=60.",
        "timeout",
    ),
    "server:address": ("cannot be asked ({why}).", "check the address and any proxy."),
    "server:redirects": (
        "redirects to {target} (status {status}), which is not followed.",
        "give that address if it is the right one.",
    ),
    "server:credentials": (
        "refused the credentials, or their absence, with status {status}.",
        "give the right ones: token=… or headers=….",
    ),
    "server:busy": (_STATUS, "try again later."),
    "server:rows": (_STATUS, "does it take such rows, with these columns and types?"),
    "server:status": (_STATUS, "check the address and the protocol."),
    "server:request-too-large": (
        "answered with status {status}: the request is too large.",
        _FEWER,
        "batch",
    ),
    "server:reply-too-large": ("gave a reply of more than {most} MiB.", _FEWER, "batch"),
    "server:no-json": ("answered with something that is no JSON: {said}.", _PROTOCOL),
    "server:no-answers": ("gave a reply that cannot be read: {why}.", _PROTOCOL),
    "server:compressed": (
        "gave a reply with the content encoding {coding}, which was not asked for.",
        "have it answer without compression.",
    ),
    "server:certificate": (
        "has a certificate that cannot be trusted ({why}).",
        'name the file of the authority that signed it, as in cafile="ca.pem".',
        "cafile",
    ),
    "server:tls": ("does not speak TLS as expected ({why}).", "check the address."),
    "server:unreachable": ("cannot be reached ({why}).", "check the address and the network."),
    "server:broke-off": ("broke off in the middle of an answer ({why}).", "try again later."),
    "cafile": (
        "{cafile} holds no certificates that can be used ({why}).",
        "give a PEM file.",
        "cafile",
    ),
    # Inquiries
    "answers.not-offered": (
        "The suspect ({suspect}) does not answer with {wanted}.",
        'use answers="{offered}" or leave it out.',
        "answers",
    ),
    "stop-at": (
        "stop_at={stop!r} is neither a number of bits nor off.",
        "64 bits convince anyone, 20 convince you.",
        "stop_at",
    ),
    "stop-at.out-of-reach": (
        "stop_at={stop:g} is more than the {triggers} triggers of this mark can reach after "
        "prices, {most:.1f} bits.",
        'ask for less, or for everything with stop_at="off".',
        "stop_at",
    ),
    # Journals
    "journal.too-large": ("{name} is too large for a journal.", "is it the right file?"),
    "journal.foreign": ("{name} is no journal of timbermark.", "give another name."),
    "journal.version": (
        "{name} has another version of the format than this timbermark reads.",
        "begin a new one with another name.",
    ),
    "journal.disk": (
        "The journal {name} cannot be written ({why}).",
        "make room and run the same command again: it goes on where it stopped.",
        "journal",
    ),
    "journal.other-run": (
        "The journal {name} was begun with {what}.",
        "resume with the same mark, suspect, decoys and columns, or begin a new journal with "
        "another name.",
        "journal",
    ),
    "journal.in-use": (
        "The journal {name} is in use by another process.",
        "wait until that run has ended.",
        "journal",
    ),
    "journal.damaged": ("The journal {name} is damaged ({why}).", _RESTORE),
    # Judgments
    "pack.no-opening": (
        "{pack} holds a claim without its opening, which shows nothing about a suspect.",
        "ask the owner to open the mark for you with timbermark open.",
    ),
    "pack.no-claim": (
        "{pack} holds no claim.",
        "give the claim as its owner published it: claim=….",
        "claim",
    ),
    "claim.other": (
        "The claim in {pack} is not the one that was published.",
        "ask the owner which of them the mark was opened for.",
    ),
    "journal.not-trusted": (
        "The journal {path} already holds answers, and nobody can tell who gave them.",
        "begin a new one, or say trust_journal=True if you wrote it yourself.",
        "trust_journal",
    ),
    "pack.no-answers": (
        "{pack} holds no answers, and there is nobody to ask.",
        "name whom to ask: suspect=….",
        "suspect",
    ),
    "pack.verdict-changed": (
        "The verdict in the pack is not what its answers give.",
        "somebody changed the pack; ask the suspect again.",
    ),
    "claim.not-carried": (
        "The model does not carry the mark: {found:.0f} of {worth:.0f} bits were found, and a "
        "claim on it would prove nothing.",
        "give the model that marking gave back with this mark.",
    ),
    # Answers as a whole
    "answers.no-class": (
        "No answer of the suspect is a class of the mark{said}.",
        "the mark's classes are {classes!r}; give label_map={{theirs: yours}} to translate the "
        "suspect's labels to these.",
        "label_map",
    ),
    "answers.none": (
        "The suspect answered none of the triggers.",
        "call it with a few rows of your own and see what it answers.",
    ),
    # Packs
    "file.pack:lacks": ("{name} lacks {part}, which its manifest lists.", _GET_AGAIN),
    "file.pack:other": ("{part} in {name} is not the file that the manifest lists.", _GET_AGAIN),
    "file.pack:unlisted": ("{name} holds {part}, which its manifest does not list.", _GET_AGAIN),
    "file.pack:manifest": ("The manifest of {name} is not one, or of a newer version.", _GET_AGAIN),
    "file.pack:listed": ("The manifest of {name} lists {part!r}.", _GET_AGAIN),
    "file.pack:part-too-large": ("{part} in {name} has more than {most} bytes.", _GET_AGAIN),
    "file.pack:too-large": ("{name} has {size} bytes, which is too large.", _GET_AGAIN),
    "file.pack:unpacks": ("{name} would unpack to more than is allowed.", _GET_AGAIN),
    "file.pack:damaged": ("{name} holds a damaged archive.", _GET_AGAIN),
    "file.pack:archive": (
        "{name} is not an archive as timbermark writes it, or it was changed.",
        "if you packed it yourself, unpack it and give the folder.",
    ),
    "pack.type": (
        "A {given} is no evidence.",
        "give the file of an opening or of an evidence pack; suspects go to suspect=….",
        "evidence",
    ),
    "file.pack:foreign": (
        "{name} is no evidence pack.",
        "give the folder or zip that timbermark wrote.",
    ),
    "pack.parent": ("The folder {folder} does not exist.", "make it first."),
    "pack.kind": (
        "{target} is {what}.",
        "a name that ends in .zip is an archive, any other a folder.",
    ),
    "pack.exists": (
        "{target} exists already, nothing was written.",
        "choose another name, or force=True to replace it.",
    ),
    "file.pack:no-manifest": (
        "{name} holds no {manifest}, so it is no evidence pack.",
        "give the folder or zip that timbermark open or judge wrote.",
    ),
    # Decoys
    "decoys-from.shape": (
        "The table for decoys has the shape ({shape}), the mark has {features} features.",
        "give rows with the features of the mark, in its order.",
        "decoys_from",
    ),
    "decoys-from.lacks": (
        "The table for decoys lacks the feature '{feature}'.",
        "give rows with all features of the mark.",
        "decoys_from",
    ),
    "decoys-from.texts": (
        "The table for decoys holds texts where the mark has numbers.",
        "give the codes that the model was trained on.",
        "decoys_from",
    ),
    # Answers
    "answers.unreadable:type": ("The suspect answered with {given}, not with a list.", _PLEASE),
    "answers.unreadable:dimensions": (
        "The suspect answered with {dimensions} dimensions.",
        _PLEASE,
    ),
    "answers.unreadable:nested": ("An answer of the suspect is nested too deeply.", _PLEASE),
    "answers.unreadable:mixed": (
        "The suspect answered with labels first and with several numbers later.",
        _PLEASE,
    ),
    "answers.unreadable:fractions": (
        "Most answers are fractions and no class is: these look like scores.",
        _PLEASE,
    ),
    "label-map.reversed": (
        _TARGETS,
        "it goes from the suspect's labels to the mark's; yours is the other way round.",
        "label_map",
    ),
    "label-map.targets": (
        _TARGETS,
        "map each of the suspect's labels to a different class.",
        "label_map",
    ),
    "answers.count": ("The suspect gave {given} answers to {rows} rows.", _PLEASE),
    "answers.other-task": (
        "The mark is one of {is_one}, to which {said} from the suspect ({suspect}) say nothing.",
        "is it a model of the same task?",
        "answers",
    ),
    "label-map.type": (
        "label_map is no dictionary of labels.",
        "as in label_map={{theirs: yours}}.",
        "label_map",
    ),
    "classes.ambiguous": (
        "The suspect has {own} classes, counted from 0, and the mark has {count} ({classes!r}): "
        "nobody can tell which are the same.",
        "is it a model of the same task? Otherwise give label_map={{theirs: yours}} and "
        'answers="labels".',
        "label_map",
    ),
    "label-map.scores": (
        "label_map is given, but the suspect answers with scores.",
        'leave it out, or ask with answers="labels".',
        "label_map",
    ),
    "answers.scores": (
        "The suspect answers with scores, not with labels.",
        'leave answers="labels" out; of an endpoint, answer=… leads to the labels.',
        "answers",
    ),
    "answers.width": (
        "The suspect answers a question with {numbers} numbers, and there are {width} classes.",
        "is it a model of the same task? The path to the answers may be wrong.",
    ),
    "answers.no-scores": (
        "The suspect answered {said!r}, which are no scores.",
        'leave answers="scores" out; of an endpoint, answer=… leads to the scores.',
        "answers",
    ),
    "answers.no-probabilities": (
        "The suspect answered {said!r}, which are no probabilities.",
        'if these are raw scores, use scale="margins".',
        "scale",
    ),
    "answers.unreadable:no-list": (
        "The suspect's answer, {given}, is no list of answers ({why}).",
        _PLEASE,
    ),
    "classes.none": (
        "No class of the suspect ({own!r}) is one of the mark ({classes!r}).",
        "is it a model of the same task? Otherwise give label_map={{theirs: yours}} and "
        'answers="labels".',
        "label_map",
    ),
    "classes.twice": (
        "Two classes of the suspect ({own!r}) are the same class of the mark.",
        "give its labels the type that they had when the model was marked.",
    ),
    "answers.no-number": (
        "The suspect answers with no numbers: it says {shown}.",
        "answer with one number for each row, as a regressor's predict does.",
    ),
    "answers.unlike-first": (
        "The suspect answered {said!r}, which are not scores like the first ones.",
        "the path to the answers may be wrong.",
    ),
    # Records of an owner
    "ledger.damaged": (
        "{path} is no sound list of openings: {reason}.",
        "restore it from a backup; or remove it and open the mark again for each judge.",
    ),
    "folder.none": ("{folder} is no folder.", "give the folder in which your marks are."),
    "tsa.url": ("{url!r:.80} is no address of an authority.", "it begins with http.", "tsa"),
    "tsa.other": (
        "The authority at {url} answered with {kind}, not with a time stamp.",
        "check the address.",
        "tsa",
    ),
    "tsa.silent": (
        "The authority at {url} did not answer ({said}).",
        "try again or another one; the query can also be sent by other means.",
        "tsa",
    ),
    "folder.too-large": (
        "{folder} holds more than {most} files.",
        "keep marks and claims in a folder of their own.",
    ),
    # Second opinions
    "opinion.shape": (
        "The rows for the second opinion have the shape ({shape}), the mark has {features} "
        "columns.",
        "give rows in the mark's columns.",
    ),
    "opinion.labels": (
        "{rows} rows for the second opinion have {labels} labels.",
        "give one label for each row.",
    ),
    "opinion.classes": (
        "The labels for the second opinion are not two or more classes of the mark.",
        "the mark's classes are {classes!r}.",
    ),
    "opinion.few": (
        "{rows} rows with answers are too few to train models on for a second opinion.",
        "give at least {fewest}; thousands are better.",
    ),
    "opinion.texts": (
        "The rows for the second opinion are not numbers.",
        "give rows in the mark's columns.",
    ),
    # Time stamps
    "stamp.unreadable": ("The time stamp cannot be read ({why}).", _STAMP),
    "stamp.refused": ("The authority refused to stamp the claim ({why}).", _STAMP),
    "stamp.hash": ("The time stamp uses a hash that is not SHA-2.", _STAMP),
    "stamp.other": ("The time stamp is about something else than this claim.", _STAMP),
    "stamp.roots": ("The root certificates cannot be read.", "give them as a PEM file.", "roots"),
    # Suspects
    "suspect.unknown": (
        "{suspect!r:.80} cannot be asked.",
        "give a function from rows to labels or scores, a fitted model with predict, or a model"
        " file.",
    ),
    "suspect.result": ("That is the result of marking, not a model.", "give result.model."),
    "file.changed": ("{path} changed while it was read.", "copy it first, then use the copy."),
    "suspect.failed": (
        "The suspect ({suspect}) could not answer: {said}",
        "call it with a few rows of your own; it is given a matrix of the triggers' values.",
    ),
    "suspect.failed:method": (
        "The suspect ({suspect}) could not answer: {said}",
        "give the {owner} itself, not its method: it is then asked with the names of its columns.",
    ),
    "suspect.failed:function": (
        "The suspect ({suspect}) could not answer: {said}",
        "a function is given a matrix of the triggers' values; if it wants a table, wrap it: "
        "lambda rows: function(pandas.DataFrame(rows, columns=mark.feature_names)).",
    ),
    "suspect.other-features": (
        "{library} does not take the triggers ({why}).",
        "the model wants other features than the mark has.",
    ),
    # Tables of questions and answers
    "table.which-column": (
        "{table} does not tell which column holds the answers.",
        "call it 'label', or call columns of scores like the classes.",
    ),
    "questions.ending": (
        "Questions cannot be written as {path}.",
        "use a name that ends in .csv or .parquet.",
    ),
    "questions.id-column": (
        "'{name}' is the name of the column of ids.",
        "name that column otherwise.",
    ),
    "table.no-ids": (
        "{table} has no column '{name}'.",
        "a table holds the answers to what `timbermark questions` wrote, beside their ids.",
    ),
    "table.other-questions": (
        "{table} answers none of the questions of this mark.",
        "are they the questions of another mark, or were the ids changed?",
    ),
    "table.twice": ("{table} answers the question '{cell}' twice.", "answer it once."),
    "table.no-labels": ("{table} holds no labels.", "call their column 'label'."),
    # Transcripts
    "transcript.not-sound": ("The transcript is not sound: {what}.", FOREIGN),
    "transcript.unreadable": ("The transcript cannot be read.", FOREIGN),
    # Verification
    "mark.type": ("{given} is not a mark.", "load one with Mark.load(path)."),
    "option.unfit": ("{name} is for {what}, and this is none.", "leave it out.", "{name}"),
}


class _Listed(list[Any]):
    """A list in a sentence: names as they are, or labels with ``!r``; the first of many."""

    def __str__(self) -> str:
        return _join(map(str, self[:_MOST_NAMES]), len(self) > _MOST_NAMES)

    def __repr__(self) -> str:
        plain = (one.item() if hasattr(one, "item") else one for one in self[:_MOST_LABELS])
        return _join(map(repr, plain), len(self) > _MOST_LABELS)


def _join(shown: Iterable[str], more: bool) -> str:
    return ", ".join(shown) + (", …" if more else "")


def say_refusal(code: str, facts: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the message, the hint and the parameter of a refusal.

    >>> say_refusal("answers.count", {"given": 3, "rows": 4})[0]
    'The suspect gave 3 answers to 4 rows.'
    """
    shown = {
        name: _Listed(value) if isinstance(value, list | tuple) else value
        for name, value in facts.items()
    }
    message, hint, *parameter = (part.format(**shown) for part in REFUSALS[code])
    return message, hint, "".join(parameter)


@overload
def refusal(code: str, /, **facts: Any) -> InputError: ...
@overload
def refusal(code: str, error: type[Error], /, **facts: Any) -> Error: ...
def refusal(
    code: str, error: type[TimbermarkError] = InputError, /, **facts: Any
) -> TimbermarkError:
    """Return the error to raise for a code of `REFUSALS`, given the facts of the case.

    >>> refusal("answers.count", given=3, rows=4).code
    'answers.count'
    """
    message, hint, parameter = say_refusal(code, facts)
    return error(message, hint, code.partition(":")[0], parameter)


def check_number(name: str, value: Any, low: float, high: float, whole: bool = False) -> None:
    """Raise InputError unless an option is a number within bounds.

    >>> check_number("batch", 64, 1, 10_000, whole=True)
    """
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not low <= value <= high:
        kind = "whole number" if whole else "number"
        raise refusal("option.number", name=name, value=value, kind=kind, low=low, high=high)


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise InputError unless an option is one of some words.

    >>> check_choice("in_doubt", "ask", ("ask", "skip"))
    """
    if value not in known:
        raise refusal("option.unknown", name=name, value=value, known=list(known))
