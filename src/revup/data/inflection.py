"""Lemmas of English verbs and nouns by rule, for looking predicates up in a lexicon.

A lexicon decides what is a word: every form that might be the lemma is tried, the most likely first. So a short list of
irregular forms and the regular endings are enough, and the same predicates are found whatever else is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

# base and its irregular forms; a past form that is also a base of its own (found, lay, saw) is looked up as it is first
_VERBS = """
    abide abode, arise arose arisen, awake awoke awoken, be am are is was were been being, bear bore borne born,
    beat beaten, become became, beget begot begat begotten, begin began begun, behold beheld, bend bent, beseech
    besought, bid bade bidden, bind bound, bite bit bitten, bleed bled, blow blew blown, break broke broken,
    breed bred, bring brought, build built, burn burnt, buy bought, catch caught, choose chose chosen, cleave
    cleft clove cloven clave, cling clung, come came, creep crept, deal dealt, dig dug, do did done does, draw
    drew drawn, dream dreamt, drink drank drunk, drive drove driven, dwell dwelt, eat ate eaten, fall fell
    fallen, feed fed, feel felt, fight fought, find found, flee fled, fling flung, fly flew flown, forsake
    forsook forsaken, freeze froze frozen, get got gotten, gild gilt, gird girt, give gave given, go went gone
    goes, grind ground, grow grew grown, hamstring hamstrung, hang hung, have had has, hear heard, heave hove,
    hew hewn, hide hid hidden, hold held, keep kept, kneel knelt, know knew known, lay laid, lead led, lean
    leant, leap leapt, learn learnt, leave left, lend lent, lie lay lain, light lit, lose lost, make made, mean
    meant, meet met, mow mown, pay paid, plead pled, prove proven, rend rent, ride rode ridden, ring rang rung,
    rise rose risen, run ran, saw sawn, say said, see saw seen, seek sought, sell sold, send sent, sew sewn,
    shake shook shaken, shear shorn, shine shone, shoe shod, shoot shot, show shown, shrink shrank shrunk, sing
    sang sung, sink sank sunk sunken, sit sat, slay slew slain, sleep slept, slide slid, sling slung, slink
    slunk, smell smelt, smite smote smitten, sow sown, speak spoke spoken, speed sped, spell spelt, spend spent,
    spill spilt, spin spun, spit spat, spoil spoilt, spring sprang sprung, stand stood, steal stole stolen,
    stick stuck, sting stung, stink stank stunk, strew strewn, stride strode stridden, strike struck stricken,
    string strung, strive strove striven, swear swore sworn, sweep swept, swell swollen, swim swam swum, swing
    swung, take took taken, teach taught, tear tore torn, tell told, think thought, thrive throve thriven, throw
    threw thrown, tread trod trodden, wake woke woken, wear wore worn, weave wove woven, weep wept, win won,
    wind wound, wring wrung, write wrote written
"""
_NOUNS = "man men, woman women, child children, person people, foot feet, tooth teeth, mouse mice, goose geese"
_PREFIXES = (
    *("be", "co", "dis", "for", "fore", "in", "inter", "mis", "out", "over", "part", "re", "un", "under", "up", "with"),
)
_LEMMA = {
    form: forms[0] for entry in f"{_VERBS},{_NOUNS}".split(",") for forms in [entry.split()] for form in forms[1:]
}
_VOWELS = frozenset("aeiou")


@lru_cache(maxsize=65536)
def lemmas(word: str) -> tuple[str, ...]:
    """Return the forms that may be the lemma of a word in lower case, the most likely first; not the word itself."""
    return tuple(dict.fromkeys(form for form in (*_irregular(word), *_regular(word)) if len(form) > 1 and form != word))


def _irregular(word: str, prefixes: int = 2) -> Iterator[str]:
    """The base of an irregular form, also behind up to two prefixes (underwent → undergo, misunderstood)."""
    if word in _LEMMA:
        yield _LEMMA[word]
    for prefix in _PREFIXES if prefixes else ():
        rest = word.removeprefix(prefix)
        if rest != word:
            yield from (prefix + base for base in _irregular(rest, prefixes - 1))
    if word.endswith("men"):  # gunmen
        yield word[:-2] + "an"


def _regular(word: str) -> Iterator[str]:
    """What regular endings allow."""
    if word.endswith("ying"):  # dying → die, before the dye of "dy" and "e"
        yield word[:-4] + "ie"
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1:
            yield from _without_vowel(stem)
    if word.endswith("s"):
        yield from _singular(word[:-1])


def _without_vowel(stem: str) -> Iterator[str]:
    """The bases of a stem before -ed or -ing: after a single vowel and consonant, hop would have given hopped."""
    short = len(stem) > 2 and stem[-3] not in _VOWELS and stem[-2] in _VOWELS and stem[-1] not in _VOWELS
    doubled = stem[-1] == stem[-2] and stem[-1] not in _VOWELS
    yield from (stem + "e", stem) if short and stem[-1] not in "wxy" else (stem, stem + "e")
    if doubled:
        yield stem[:-1]
    if stem[-1] == "i":
        yield stem[:-1] + "y"
    if stem.endswith("ck"):  # picnicking
        yield stem[:-1]


def _singular(stem: str) -> Iterator[str]:
    """The bases of a form without its -s: writes → write, and only after a hiss or an o, without -es."""
    if stem.endswith("ie"):
        yield from (stem[:-2] + "y", stem)
    elif stem.endswith(("se", "xe", "ze", "che", "she", "oe")):
        yield from (stem, stem[:-1], stem[:-1] + "is")  # crises
    else:
        yield stem
    if stem.endswith(("sse", "zze")):  # quizzes
        yield stem[:-2]
