"""Words of a parsed English sentence: labels of two dependency schemes, word lists, and tests of a token.

Universal Dependencies and the ClearNLP labels of spaCy's English models are both understood: `label` renames ClearNLP
labels to their UD counterparts. Some parsers give only Penn tags, some only coarse ones; the tests use what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(slots=True)
class Token:
    """A word of a parsed sentence; `index` counts from 1, and `head` is the index of its head, 0 at the root."""

    index: int
    form: str
    lemma: str  # "" where there is none
    upos: str  # the coarse tag, "" where there is none
    tag: str  # the Penn tag, "" where there is none
    head: int
    deprel: str


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RENAMED = {
    "nsubjpass": "nsubj:pass",
    "csubjpass": "csubj:pass",
    "dobj": "obj",
    "attr": "xcomp",
    "oprd": "xcomp",
    "acomp": "xcomp",
    "auxpass": "aux:pass",
    "prt": "compound:prt",
    "relcl": "acl:relcl",
    "poss": "nmod:poss",
    "nmod:agent": "obl:agent",
}
_SUBTYPES = _words("nsubj:pass csubj:pass nsubj:outer aux:pass compound:prt acl:relcl nmod:poss nmod:desc obl:agent")
SUBJECTS = {"nsubj": 0, "nsubj:pass": 1, "csubj": 2, "csubj:pass": 3}  # the first of several is the subject
PASSIVE_MARKS = _words("aux:pass nsubj:pass csubj:pass agent obl:agent")
PREPOSITIONAL = _words("prep agent dative")  # ClearNLP: the preposition heads its noun
NEVER_PREDICATES = _words(
    """
    aux aux:pass cop case prep agent mark amod advmod det cc fixed goeswith flat compound compound:prt nummod
    discourse punct
    """
)
_BE = _words("be is are am was were been being 's 're 'm ’s ’re ’m")
HELPERS = _words("going gon used have has had 've")
NEGATIONS = _words("not n't n’t nt never")
NEVER_AGENTS = _words("after as at before during for from in into of on since to with")  # frequent parser errors
RELATIVE_ADVERBS = _words("where when why how whose")
_RELATIVE = _words("who whom which that")
AFTER_SURNAMES = _words("jr jr. sr sr. ii iii iv")
# the subject, not the object, is the agent of the infinitive: "promised her to come", "used the money to pay"
SUBJECT_CONTROL = _words("promise use spend")
LIGHT_VERBS = _words("make take give have do conduct launch undertake perform carry-out")
# "the day he died", "the way she works": the gap of the relative clause is not its object
ADVERBIAL_NOUNS = _words("time day year month week night moment way reason place point extent")
_NOMINAL = _words("NOUN PROPN PRON NUM")
DATES = _words(
    """
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday today yesterday tomorrow year month week day decade century morning afternoon
    evening night season time spring summer autumn fall winter hour minute moment period
    """
)
NOMINAL_SUFFIXES = ("tion", "sion", "ment", "ance", "ence", "ing", "ure", "val", "sal")

EVENTIVE_NOUNS = _words(
    """
    abduction abolition abuse accident accusation acquisition acquittal adoption advance ambush amputation
    announcement annexation apology appointment arrest arrival arson assassination assault attack attempt auction
    ban bankruptcy battle betrayal birth blast blockade bombardment bombing boycott breach breakdown breakout
    breakthrough bribery broadcast burglary burial campaign cancellation capture celebration ceasefire ceremony
    clash closure collapse collision competition complaint concert condemnation confession
    confrontation conquest construction contest conversion conviction coronation coup coverup crackdown
    crash crisis crusade cyclone damage death debate debut decision declaration decline defeat defection
    deforestation delay delivery demolition demonstration departure deportation deployment destruction detention
    discovery dismissal dispute disaster divorce downfall drought duel earthquake eclipse election elimination
    embargo emigration encounter endorsement epidemic eruption escape eviction evacuation excavation
    exchange execution exile expansion expedition explosion expulsion extinction extradition famine feud fight fire
    flight flood fraud funeral genocide graduation growth hearing hijacking hunt hurricane 
    imprisonment inauguration incident increase inquiry insurgency insurrection interrogation
    intervention interview invasion investigation journey kidnapping killing lawsuit launch liberation looting loss
    marriage march massacre match meeting merger migration murder mutiny negotiation occupation offensive operation
    ordination outbreak outage overthrow pandemic parade performance persecution pilgrimage plunder poisoning
    premiere privatization prosecution protest purchase pursuit race raid rally rape rebellion
    reconstruction recovery reduction reelection reform rejection release relocation removal renovation rescue
    resignation restoration retirement retreat retrial reunion revolt revolution riot robbery sabotage sacking sale
    search seizure separation shipwreck shooting shutdown siege skirmish slaughter speech stabbing storm strike
    struggle suicide summit surgery surrender suspension takeover testimony theft tornado torture tour
    tournament transfer transition treatment trial trip tsunami turmoil unification unrest uprising vandalism
    verdict victory violation violence visit vote voyage war wedding withdrawal
    """
)


@lru_cache(maxsize=1024)
def normal_label(deprel: str) -> str:
    """Return the relation in UD's terms, without subtypes that make no difference here."""
    label = _RENAMED.get(deprel, deprel)
    return label if label in _SUBTYPES else label.partition(":")[0]


def joined(parts: Sequence[str]) -> str:
    """Join words to one token in lower case; "-owned", which tokenisers leave of "state-owned", becomes "owned"."""
    text = "-".join("-".join(parts).lower().split())
    return text.strip("-") or text


def is_verb(token: Token) -> bool:
    """Return whether a token is a verb other than "be"."""
    if not (token.upos == "VERB" if token.upos else token.tag.startswith("VB")):
        return False
    return (token.lemma or token.form).lower() not in _BE


def is_noun(token: Token) -> bool:
    """Return whether a token is a noun, pronoun or number."""
    return token.upos in _NOMINAL if token.upos else token.tag.startswith(("NN", "PRP", "CD"))


def is_common_noun(token: Token) -> bool:
    """Return whether a token is a common noun."""
    return token.upos == "NOUN" if token.upos else token.tag in ("NN", "NNS")


def is_proper(token: Token) -> bool:
    """Return whether a token is a proper noun."""
    return token.upos == "PROPN" if token.upos else token.tag.startswith("NNP")


def is_preposition(token: Token) -> bool:
    """Return whether a token is a preposition or particle."""
    return token.upos == "ADP" if token.upos else token.tag in ("IN", "TO", "RP")


def is_relative(token: Token) -> bool:
    """Return whether a token is a relative pronoun."""
    if token.form.lower() not in _RELATIVE:
        return False
    return token.tag in ("WDT", "WP") or (token.upos == "PRON" and token.tag != "DT")


def is_participle(token: Token) -> bool:
    """Return whether a token is a participle, by its tag or else its ending."""
    return token.tag in ("VBG", "VBN") or (
        not token.tag.startswith("VB") and token.form.lower().endswith(("ing", "ed"))
    )


def is_past_participle(token: Token) -> bool:
    """Return whether a token is a past participle, by its tag or else its ending."""
    return token.tag == "VBN" or (not token.tag.startswith("VB") and token.form.lower().endswith("ed"))
