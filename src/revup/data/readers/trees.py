"""Events from dependency trees, for every reader that has parses (conllu, text).

Verbs and eventive nouns become predicates; who did it and to whom is read off the tree, with passives turned
round and the arguments that grammar leaves unsaid (conjuncts, controlled infinitives, relative clauses,
participles) filled in from where they stand. docs/events-from-text.md has the rules as a table with examples.

Universal Dependencies and the ClearNLP labels of spaCy's English models are both read: ClearNLP labels are
renamed to their UD counterparts first, and prepositions, which head their noun in one scheme and depend on it
in the other, are brought to one form by `_Tree.obliques`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from revup.data.events import Event


@dataclass(slots=True)
class Token:
    """A word of a parsed sentence; `index` counts from 1, and `head` is the governor's index, 0 at the root."""

    index: int
    form: str
    lemma: str  # "" where there is none
    upos: str  # the coarse tag, "" where there is none
    tag: str  # the Penn tag, "" where there is none
    head: int
    deprel: str


class Oblique(NamedTuple):
    """A noun that hangs on a predicate by a preposition; no noun where the preposition is stranded."""

    at: int
    preposition: str
    noun: Token | None
    agent: bool  # labelled as the agent of a passive


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
_SUBJECTS = ("nsubj", "nsubj:pass", "csubj", "csubj:pass")
_PASSIVE_MARKS = _words("aux:pass nsubj:pass csubj:pass agent obl:agent")
_PREPOSITIONAL = _words("prep agent dative")  # ClearNLP: the preposition heads its noun
_NEVER_PREDICATES = _words(
    """
    aux aux:pass cop case prep agent mark amod advmod det cc fixed goeswith flat compound compound:prt nummod
    discourse punct
    """
)
_BE = _words("be is are am was were been being 's 're 'm ’s ’re ’m")
_HELPERS = _words("going gon used have has had 've")
_NEGATIONS = _words("not n't n’t nt never")
_NEVER_AGENTS = _words("after as at before during for from in into of on since to with")  # parsers slip here
_RELATIVE_ADVERBS = _words("where when why how whose")
_RELATIVE = _words("who whom which that")
_AFTER_SURNAMES = _words("jr jr. sr sr. ii iii iv")
# the subject, not the object, carries out the infinitive: "promised her to come", "used the money to pay"
_SUBJECT_CONTROL = _words("promise use spend")
_LIGHT_VERBS = _words("make take give have do conduct launch undertake perform carry-out")
# "the day he died", "the way she works": the gap of the relative clause is not its object
_ADVERBIAL_NOUNS = _words("time day year month week night moment way reason place point extent")
_NOMINAL = _words("NOUN PROPN PRON NUM")
_DATES = _words(
    """
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday today yesterday tomorrow year month week day decade century morning afternoon
    evening night season time spring summer autumn fall winter hour minute moment period
    """
)
_NOMINAL_SUFFIXES = ("tion", "sion", "ment", "ance", "ence", "ing", "ure", "val", "sal")

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


def events(sentence: Sequence[Token], words: str = "form") -> list[Event]:
    """The events of one sentence, in the order of their predicates.

    The predicate is the lower-cased form, its lemma kept beside it where it differs; `words` says whether the
    arguments are the "form" or the "lemma" of their head word. A tree is expected: tokens that no root reaches
    (see `unreached`) give no events.
    """
    tree = _Tree(sentence, words)
    found = [tree.verb_event(token) if token.index in tree.verbs else tree.noun_event(token) for token in sentence]
    return [event for event in found if event is not None]


def unreached(sentence: Sequence[Token]) -> list[Token]:
    """The tokens that hang on no root, because their heads run in a circle."""
    reached = {token.index for token in _from_the_roots(sentence, _children(sentence))}
    return [token for token in sentence if token.index not in reached]


def _children(sentence: Sequence[Token]) -> list[list[Token]]:
    children: list[list[Token]] = [[] for _ in range(len(sentence) + 1)]
    for token in sentence:
        children[token.head].append(token)
    return children


def _from_the_roots(sentence: Sequence[Token], children: list[list[Token]]) -> Iterator[Token]:
    """Governors before their dependents."""
    level = children[0]
    while level:
        yield from level
        level = [child for token in level for child in children[token.index]]


class _Tree:
    """A sentence with what its clauses leave unsaid, worked out from the roots downwards.

    Governors come before dependents, so what a clause inherits is known when the clause is reached, however deep
    the tree. `subject` and `object` are those of the surface: a passive is turned round only in its event.
    """

    def __init__(self, sentence: Sequence[Token], words: str) -> None:
        self.words = words
        size = len(sentence) + 1
        self.tokens: list[Token | None] = [None, *sentence]
        self.labels = [""] + [_label(token.deprel) for token in sentence]
        self.children = _children(sentence)
        self.verbs: set[int] = set()
        self.subject: list[Token | None] = [None] * size
        self.object: list[Token | None] = [None] * size
        self.oblique: list[Oblique | None] = [None] * size
        self.agent: list[Token | None] = [None] * size
        self.passive = [False] * size
        self.antecedent: list[Token | None] = [None] * size  # the noun that the relative clause around modifies
        self.gap: list[Token | None] = [None] * size  # that noun, where the clause still lacks an object
        for token in _from_the_roots(sentence, self.children):
            self._resolve(token)

    # the shape of the tree

    def kids(self, token: Token, *labels: str) -> list[Token]:
        return [child for child in self.children[token.index] if self.labels[child.index] in labels]

    def label(self, token: Token) -> str:
        return self.labels[token.index]

    def governor(self, token: Token) -> Token | None:
        return self.tokens[token.head]

    def obliques(self, token: Token) -> list[Oblique]:
        """The prepositional dependents, in either scheme: UD's noun with its case, ClearNLP's prep with its pobj."""
        found = []
        for child in self.children[token.index]:
            label = self.label(child)
            if label in _PREPOSITIONAL:
                oblique = self._headed_by_preposition(child, label == "agent")
                found += [oblique] if oblique is not None else []
            elif label in ("obl", "obl:agent", "nmod"):
                cases = [case for case in self.kids(child, "case") if case.tag != "POS"]
                if cases:
                    spelled = [part.form for case in cases for part in (case, *self.kids(case, "fixed"))]
                    agent = label == "obl:agent" and spelled[0].lower() not in _NEVER_AGENTS
                    found.append(Oblique(child.index, _joined(spelled), self.referent(child, token), agent))
                elif _is_preposition(child):
                    found.append(Oblique(child.index, _joined([child.form]), None, False))
        return found

    def _headed_by_preposition(self, preposition: Token, agent: bool) -> Oblique | None:
        """ClearNLP's form; None where there is no preposition ("gave him") or a clause behind it ("by selling")."""
        spelled, at = [preposition.form], preposition.index
        if self.label(preposition) == "dative" and not _is_preposition(preposition):
            return None
        while True:
            nouns = self.kids(preposition, "pobj")
            if nouns:
                return Oblique(at, _joined(spelled), self.referent(nouns[0], preposition), agent)
            # "according to", "because of": one preposition hangs on another
            inner = [child for child in self.kids(preposition, "prep", "pcomp") if _is_preposition(child)]
            if not inner:
                clause = self.kids(preposition, "pcomp")
                return None if clause else Oblique(at, _joined(spelled), None, agent)
            preposition = inner[0]
            spelled.append(preposition.form)

    def referent(self, argument: Token, clause: Token) -> Token:
        """What an argument stands for: a relative pronoun stands for the noun that its clause modifies."""
        antecedent = self.antecedent[clause.index]
        return antecedent if antecedent is not None and _is_relative(argument) else argument

    # what each clause means, governors first

    def _resolve(self, token: Token) -> None:
        at, label, governor = token.index, self.label(token), self.governor(token)
        if label == "acl:relcl":
            self.antecedent[at] = governor
        elif governor is not None:
            self.antecedent[at] = self.antecedent[governor.index]
        if _is_verb(token) and label not in _NEVER_PREDICATES:
            self.verbs.add(at)
        own = next((child for name in _SUBJECTS for child in self.kids(token, name)), None)
        if own is not None:
            self.subject[at] = self.referent(own, token)
        elif (at in self.verbs or label == "xcomp" or self.kids(token, "cop")) and not self.kids(token, "expl"):
            self.subject[at] = self._unsaid_subject(token, label, governor)
        if at in self.verbs:
            self.passive[at] = self._is_passive(token, label, own)
            self._resolve_objects(token, label, governor)

    def _unsaid_subject(self, token: Token, label: str, governor: Token | None) -> Token | None:
        if governor is None:
            return None
        above = governor.index
        if label == "conj":
            return self.subject[above]
        if label == "xcomp":
            control = None if governor.lemma in _SUBJECT_CONTROL else self.object[above]
            return control or self.subject[above]
        if label == "advcl":
            # "the law was passed to protect them": those who pass, not what is passed
            return self.agent[above] if self.passive[above] and self._is_infinitive(token) else self.subject[above]
        if label == "acl:relcl":
            return governor
        if label == "acl":
            return governor if _is_participle(token) and not self.kids(token, "mark", "case") else None
        if label == "pcomp" and governor.head in self.verbs:
            return self.subject[governor.head]
        return None

    def _is_passive(self, token: Token, label: str, own_subject: Token | None) -> bool:
        children = self.children[token.index]
        if any(self.label(child) in _PASSIVE_MARKS for child in children):
            return True
        if not _is_past_participle(token) or own_subject is not None or self.kids(token, "aux"):
            return False
        # a bare past participle is passive ("a book written by …"), unless it shares the auxiliary of an active
        return self.passive[token.head] if label == "conj" else token.tag == "VBN" or label in ("acl", "advcl")

    def _is_infinitive(self, token: Token) -> bool:
        return any(child.form.lower() == "to" for child in self.kids(token, "mark", "aux"))

    def _resolve_objects(self, token: Token, label: str, governor: Token | None) -> None:
        at = token.index
        shared = governor.index if label == "conj" and governor is not None and token.head in self.verbs else 0
        obliques = self.obliques(token)
        if self.passive[at]:
            agents = [o for o in obliques if o.agent] or [
                o for o in obliques if o.preposition == "by" and not _dated(o)
            ]
            obliques = [oblique for oblique in obliques if oblique not in agents[:1]]
            self._resolve_agent(at, shared, agents[0].noun if agents else None)
        self.oblique[at] = _foremost(obliques, at)
        shared_oblique = self.oblique[shared]
        if not obliques and shared_oblique is not None and shared_oblique.at > at:
            self.oblique[at] = shared_oblique
        self.object[at] = self._find_object(token, shared, obliques)

    def _resolve_agent(self, at: int, shared: int, agent: Token | None) -> None:
        """Conjuncts share an agent that follows them all, wherever it was hung: "bought and sold by investors"."""
        theirs = self.agent[shared]
        if agent is None and theirs is not None and theirs.index > at:
            agent = theirs
        elif agent is not None and theirs is None and self.passive[shared] and self._adjacent(shared, at):
            self.agent[shared] = agent
        self.agent[at] = agent

    def _adjacent(self, first: int, last: int) -> bool:
        return all(label in ("cc", "punct", "conj", "advmod") for label in self.labels[first + 1 : last])

    def _find_object(self, token: Token, shared: int, obliques: list[Oblique]) -> Token | None:
        at = token.index
        for name in ("obj", "iobj", "dative"):
            for child in self.kids(token, name):
                if name != "dative" or not _is_preposition(child):
                    return self.referent(child, token)
        # "bought and sold shares": what follows the last conjunct belongs to all of them
        later = self.object[shared]
        if later is not None and later.index > at and not obliques:
            return later
        complements = self.kids(token, "xcomp", "ccomp")
        for child in complements:
            if _is_noun(child) and not self.kids(child, "case", "cop", "mark"):
                return child
        return self._fill_gap(token, complements, obliques)

    def _fill_gap(self, token: Token, complements: list[Token], obliques: list[Oblique]) -> Token | None:
        """The noun that a relative clause modifies, where the clause has no pronoun for it and lacks an object."""
        at = token.index
        gap = self.gap[at]
        if self.label(token) == "acl:relcl":
            gap = self.governor(token)
            if (
                gap is None
                or self.passive[at]
                or self.subject[at] in (gap, None)
                or (gap.lemma or gap.form).lower() in _ADVERBIAL_NOUNS
                or self._has_relative_adverb(token)
                or any(oblique.noun in (gap, None) for oblique in obliques)
            ):
                return None
        for child in complements:
            if gap is not None and _is_verb(child):
                self.gap[child.index] = gap  # "the man she wanted to see": the gap is further down
                return None
        return gap

    def _has_relative_adverb(self, clause: Token) -> bool:
        """Whether the clause says itself that its noun is not its object: where, when, why, whose."""
        return any(child.form.lower() in _RELATIVE_ADVERBS for child in self.children[clause.index])

    # events

    def verb_event(self, token: Token) -> Event | None:
        at = token.index
        if self._only_helps(token):
            return None
        particles = [particle.form for particle in self.kids(token, "compound:prt")]
        pred = _joined([token.form, *particles])
        lemma = _joined([token.lemma or token.form, *particles])
        oblique = self.oblique[at]
        if self.passive[at]:
            subject = self.agent[at]
            # "was given a prize": the prize is the object, who was given it is not
            target = next(iter(self.kids(token, "obj")), self.subject[at])
        else:
            subject, target = self.subject[at], self.object[at]
            # what stands in an object's place ("became famous in 1988") leaves none for the preposition's noun
            if target is None and oblique is not None and not self.kids(token, "xcomp"):
                target = oblique.noun or self.antecedent[at]
        return self._event(pred, lemma, subject, target, oblique, self._is_negated(token), "v")

    def _only_helps(self, token: Token) -> bool:
        """Whether the verb is an auxiliary in all but its label: going to, used to, have to."""
        if token.form.lower() not in _HELPERS or self.passive[token.index] or self.object[token.index] is not None:
            return False
        return any(self._is_infinitive(child) for child in self.kids(token, "xcomp"))

    def noun_event(self, token: Token) -> Event | None:
        """The event that a noun names, if it names one: listed, or a nominalisation with its doer beside it."""
        if not _is_common_noun(token) or self.label(token) in ("compound", "flat", "fixed", "case", "nmod:desc"):
            return None
        lemma = (token.lemma or token.form).lower()
        listed = lemma in EVENTIVE_NOUNS or (not token.lemma and lemma.removesuffix("s") in EVENTIVE_NOUNS)
        if not listed and not lemma.endswith(_NOMINAL_SUFFIXES):
            return None
        obliques = self.obliques(token)
        by = next((oblique.noun for oblique in obliques if oblique.preposition == "by" and not _dated(oblique)), None)
        of = next((oblique.noun for oblique in obliques if oblique.preposition == "of"), None)
        if not listed and (by is None or of is None):
            return None
        owner = next(iter(self.kids(token, "nmod:poss")), None)
        others = [oblique for oblique in obliques if oblique.preposition not in ("of", "by")]
        other = _foremost(others, token.index)
        subject = by or owner or self._light_verb_subject(token)
        target = of or (owner if by is not None else None) or (other.noun if other is not None else None)
        negated = any(child.form.lower() == "no" for child in self.kids(token, "det"))
        return self._event(_joined([token.form]), _joined([lemma]), subject, target, other, negated, "n")

    def _light_verb_subject(self, token: Token) -> Token | None:
        """Who does what the noun says, where its verb says little itself: "she made an announcement"."""
        verb = self.governor(token)
        if verb is None or self.label(token) != "obj" or verb.index not in self.verbs:
            return None
        particles = [particle.form for particle in self.kids(verb, "compound:prt")]
        light = _joined([verb.lemma, *particles]) in _LIGHT_VERBS and not self.passive[verb.index]
        return self.subject[verb.index] if light else None

    def _is_negated(self, token: Token) -> bool:
        if any(child.form.lower() in _NEGATIONS for child in self.kids(token, "advmod", "neg", "aux")):
            return True
        before = self.kids(token, "mark", "case")
        governor = self.governor(token)
        if governor is not None and self.label(token) == "pcomp":
            before.append(governor)
        return any(word.form.lower() == "without" for word in before)

    def _event(
        self,
        pred: str,
        lemma: str,
        subject: Token | None,
        target: Token | None,
        oblique: Oblique | None,
        negated: bool,
        pos: str,
    ) -> Event:
        if target is subject:
            target = None  # one word in both places is a slip of the parser
        event = Event(pred, self._word(subject), self._word(target), oblique.preposition if oblique else None)
        event.lemma = lemma if lemma != pred else None
        event.extra = {"pos": pos, "negated": True} if negated else {"pos": pos}
        return event

    def _word(self, token: Token | None) -> str | None:
        if token is None:
            return None
        # UD heads a name by its first word; the last is what the text goes on to call the person
        at = token.index
        for part in self.kids(token, "flat") if _is_proper(token) else ():
            if part.index == at + 1 and _is_proper(part):
                at += 1
                token = token if part.form.lower() in _AFTER_SURNAMES else part
        return _joined([(self.words == "lemma" and token.lemma) or token.form])


def _label(deprel: str) -> str:
    """The relation in UD's words, without subtypes that make no difference here."""
    label = _RENAMED.get(deprel, deprel)
    return label if label in _SUBTYPES else label.partition(":")[0]


def _joined(parts: Sequence[str]) -> str:
    """One token of one or more words; tokenisers leave "-owned" of "state-owned", which is "owned"."""
    text = "-".join("-".join(parts).lower().split())
    return text.strip("-") or text


def _is_verb(token: Token) -> bool:
    if (token.lemma or token.form).lower() in _BE:
        return False
    return token.upos == "VERB" if token.upos else token.tag.startswith("VB")


def _is_noun(token: Token) -> bool:
    return token.upos in _NOMINAL if token.upos else token.tag.startswith(("NN", "PRP", "CD"))


def _is_common_noun(token: Token) -> bool:
    return token.upos == "NOUN" if token.upos else token.tag in ("NN", "NNS")


def _is_proper(token: Token) -> bool:
    return token.upos == "PROPN" if token.upos else token.tag.startswith("NNP")


def _is_preposition(token: Token) -> bool:
    return token.upos == "ADP" if token.upos else token.tag in ("IN", "TO", "RP")


def _is_relative(token: Token) -> bool:
    if token.form.lower() not in _RELATIVE:
        return False
    return token.tag in ("WDT", "WP") or (token.upos == "PRON" and token.tag != "DT")


def _is_participle(token: Token) -> bool:
    return token.tag in ("VBG", "VBN") or (
        not token.tag.startswith("VB") and token.form.lower().endswith(("ing", "ed"))
    )


def _is_past_participle(token: Token) -> bool:
    return token.tag == "VBN" or (not token.tag.startswith("VB") and token.form.lower().endswith("ed"))


def _dated(oblique: Oblique) -> bool:
    """Whether it says when or how much rather than who or what."""
    noun = oblique.noun
    if noun is None:
        return False
    return noun.upos == "NUM" or noun.tag == "CD" or (noun.lemma or noun.form).lower() in _DATES


def _foremost(obliques: list[Oblique], at: int) -> Oblique | None:
    """The oblique that says most: a participant before a date, what follows before what precedes, then the first."""
    return min(obliques, key=lambda oblique: (_dated(oblique), oblique.at < at, oblique.at), default=None)
