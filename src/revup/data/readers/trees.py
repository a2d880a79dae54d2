"""Events from dependency trees, for the readers of parsed text (conllu, text).

Verbs and eventive nouns become predicates. Arguments are read off the tree: passives are converted to active order,
and arguments that the grammar leaves implicit (conjuncts, controlled infinitives, relative clauses, participles) are
filled in. docs/events-from-text.md has the rules as a table with examples.

Prepositions head their noun in ClearNLP and depend on it in Universal Dependencies; `_Tree.obliques` unifies both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from revup.data.events import Event
from revup.data.readers import english
from revup.data.readers.english import Token


class Oblique(NamedTuple):
    """A noun attached to a predicate by a preposition; no noun where the preposition is stranded."""

    at: int
    preposition: str
    noun: Token | None
    agent: bool  # labelled as the agent of a passive


def events(sentence: Sequence[Token], words: str = "form") -> list[Event]:
    """Return the events of one sentence, in the order of their predicates.

    Predicates are forms in lower case, with the lemma where it differs.

    Args:
        sentence: A tree; tokens that no root reaches (`unreached`) give no events.
        words: Whether arguments are the "form" or the "lemma" of their head word.
    """
    return [event for _, event in located_events(sentence, words)]


def located_events(sentence: Sequence[Token], words: str = "form") -> list[tuple[Token, Event]]:
    """Return the events of one sentence, each with the token of its predicate.

    Args:
        sentence: As in `events`.
        words: As in `events`.
    """
    tree = _Tree(sentence, words)
    found = [tree.verb_event(token) if token.index in tree.verbs else tree.noun_event(token) for token in sentence]
    return [(token, event) for token, event in zip(sentence, found, strict=True) if event is not None]


def unreached(sentence: Sequence[Token]) -> list[Token]:
    """Return the tokens that no root reaches because their heads form a cycle."""
    reached = {token.index for token in _from_the_roots(sentence, _children(sentence))}
    return [token for token in sentence if token.index not in reached]


def _children(sentence: Sequence[Token]) -> list[list[Token]]:
    children: list[list[Token]] = [[] for _ in range(len(sentence) + 1)]
    for token in sentence:
        children[token.head].append(token)
    return children


def _from_the_roots(sentence: Sequence[Token], children: list[list[Token]]) -> Iterator[Token]:
    """Yield all tokens, heads before their dependents."""
    level = children[0]
    while level:
        yield from level
        level = [child for token in level for child in children[token.index]]


class _Tree:
    """A sentence with the implicit arguments of its clauses, resolved from the roots downwards.

    Heads come before dependents, so what a clause inherits is known when the clause is reached, at any depth. `subject`
    and `object` are those of the surface: a passive is converted only in its event.
    """

    def __init__(self, sentence: Sequence[Token], words: str) -> None:
        self.words = words
        size = len(sentence) + 1
        self.tokens: list[Token | None] = [None, *sentence]
        self.labels = [""] + [english.normal_label(token.deprel) for token in sentence]
        self.children = _children(sentence)
        self.verbs: set[int] = set()
        self.subject: list[Token | None] = [None] * size
        self.object: list[Token | None] = [None] * size
        self.oblique: list[Oblique | None] = [None] * size
        self.agent: list[Token | None] = [None] * size
        self.passive = [False] * size
        self.antecedent: list[Token | None] = [None] * size  # the noun that the enclosing relative clause modifies
        self.gap: list[Token | None] = [None] * size  # that noun, where the clause lacks an object
        for token in _from_the_roots(sentence, self.children):
            self._resolve(token)

    # ---- structure ----

    def kids(self, token: Token, *labels: str) -> list[Token]:
        children = self.children[token.index]
        return [child for child in children if self.labels[child.index] in labels] if children else []

    def label(self, token: Token) -> str:
        return self.labels[token.index]

    def governor(self, token: Token) -> Token | None:
        return self.tokens[token.head]

    def obliques(self, token: Token) -> list[Oblique]:
        """Return prepositional dependents in either scheme: UD's noun with its case, ClearNLP's prep with its pobj."""
        found = []
        for child in self.children[token.index]:
            label = self.label(child)
            if label in english.PREPOSITIONAL:
                oblique = self._headed_by_preposition(child, label == "agent")
                found += [oblique] if oblique is not None else []
            elif label in ("obl", "obl:agent", "nmod"):
                cases = [case for case in self.kids(child, "case") if case.tag != "POS"]
                if cases:
                    spelled = [part.form for case in cases for part in (case, *self.kids(case, "fixed"))]
                    agent = label == "obl:agent" and spelled[0].lower() not in english.NEVER_AGENTS
                    found.append(Oblique(child.index, english.joined(spelled), self.referent(child, token), agent))
                elif english.is_preposition(child):
                    found.append(Oblique(child.index, english.joined([child.form]), None, False))
        return found

    def _headed_by_preposition(self, preposition: Token, agent: bool) -> Oblique | None:
        """Read ClearNLP's form; None without a preposition ("gave him") or with a clause behind it ("by selling")."""
        spelled, at = [preposition.form], preposition.index
        if self.label(preposition) == "dative" and not english.is_preposition(preposition):
            return None
        while True:
            nouns = self.kids(preposition, "pobj")
            if nouns:
                return Oblique(at, english.joined(spelled), self.referent(nouns[0], preposition), agent)
            # "according to", "because of": one preposition depends on another
            inner = [child for child in self.kids(preposition, "prep", "pcomp") if english.is_preposition(child)]
            if not inner:
                clause = self.kids(preposition, "pcomp")
                return None if clause else Oblique(at, english.joined(spelled), None, agent)
            preposition = inner[0]
            spelled.append(preposition.form)

    def referent(self, argument: Token, clause: Token) -> Token:
        """Return what an argument refers to: a relative pronoun refers to the noun that its clause modifies."""
        antecedent = self.antecedent[clause.index]
        return antecedent if antecedent is not None and english.is_relative(argument) else argument

    # ---- arguments of each clause, heads first ----

    def _resolve(self, token: Token) -> None:
        at, label, governor = token.index, self.label(token), self.governor(token)
        if label == "acl:relcl":
            self.antecedent[at] = governor
        elif governor is not None:
            self.antecedent[at] = self.antecedent[governor.index]
        if english.is_verb(token) and label not in english.NEVER_PREDICATES:
            self.verbs.add(at)
        own = self._said_subject(token) if self.children[at] else None
        if own is not None:
            self.subject[at] = self.referent(own, token)
        elif (at in self.verbs or label == "xcomp" or self.kids(token, "cop")) and not self.kids(token, "expl"):
            self.subject[at] = self._unsaid_subject(token, label, governor)
        if at in self.verbs:
            self.passive[at] = self._is_passive(token, label, own)
            self._resolve_objects(token, label, governor)

    def _said_subject(self, token: Token) -> Token | None:
        ranks = english.SUBJECTS
        found = [child for child in self.children[token.index] if self.labels[child.index] in ranks]
        return min(found, key=lambda child: ranks[self.labels[child.index]]) if found else None

    def _unsaid_subject(self, token: Token, label: str, governor: Token | None) -> Token | None:
        if governor is None:
            return None
        above = governor.index
        if label == "conj":
            return self.subject[above]
        if label == "xcomp":
            control = None if governor.lemma in english.SUBJECT_CONTROL else self.object[above]
            return control or self.subject[above]
        if label == "advcl":
            # "the law was passed to protect them": the agent protects, not the law
            return self.agent[above] if self.passive[above] and self._is_infinitive(token) else self.subject[above]
        if label == "acl:relcl":
            return governor
        if label == "acl":
            return governor if english.is_participle(token) and not self.kids(token, "mark", "case") else None
        if label == "pcomp" and governor.head in self.verbs:
            return self.subject[governor.head]
        return None

    def _is_passive(self, token: Token, label: str, own_subject: Token | None) -> bool:
        children = self.children[token.index]
        if any(self.label(child) in english.PASSIVE_MARKS for child in children):
            return True
        if not english.is_past_participle(token) or own_subject is not None or self.kids(token, "aux"):
            return False
        # a bare past participle is passive ("a book written by …"), unless it shares an active auxiliary
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
        """Share an agent that follows all conjuncts, whichever it is attached to: "bought and sold by investors"."""
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
                if name != "dative" or not english.is_preposition(child):
                    return self.referent(child, token)
        # "bought and sold shares": the object after the last conjunct is that of all
        later = self.object[shared]
        if later is not None and later.index > at and not obliques:
            return later
        complements = self.kids(token, "xcomp", "ccomp")
        for child in complements:
            if english.is_noun(child) and not self.kids(child, "case", "cop", "mark"):
                return child
        return self._fill_gap(token, complements, obliques)

    def _fill_gap(self, token: Token, complements: list[Token], obliques: list[Oblique]) -> Token | None:
        """Return the noun that a relative clause modifies, where the clause lacks an object and a pronoun for it."""
        at = token.index
        gap = self.gap[at]
        if self.label(token) == "acl:relcl":
            gap = self.governor(token)
            if (
                gap is None
                or self.passive[at]
                or self.subject[at] in (gap, None)
                or (gap.lemma or gap.form).lower() in english.ADVERBIAL_NOUNS
                or self._has_relative_adverb(token)
                or any(oblique.noun in (gap, None) for oblique in obliques)
            ):
                return None
        for child in complements:
            if gap is not None and english.is_verb(child):
                self.gap[child.index] = gap  # "the man she wanted to see": the gap is further down
                return None
        return gap

    def _has_relative_adverb(self, clause: Token) -> bool:
        """Return whether a relative adverb (where, when, why, whose) shows that the noun is not the object."""
        return any(child.form.lower() in english.RELATIVE_ADVERBS for child in self.children[clause.index])

    # ---- events ----

    def verb_event(self, token: Token) -> Event | None:
        at = token.index
        if self._only_helps(token):
            return None
        particles = [particle.form for particle in self.kids(token, "compound:prt")]
        pred = english.joined([token.form, *particles])
        lemma = english.joined([token.lemma or token.form, *particles])
        oblique = self.oblique[at]
        if self.passive[at]:
            subject = self.agent[at]
            # "was given a prize": the prize is the object, not the recipient
            target = next(iter(self.kids(token, "obj")), self.subject[at])
        else:
            subject, target = self.subject[at], self.object[at]
            # a complement in the object's place ("became famous in 1988") excludes the preposition's noun
            if target is None and oblique is not None and not self.kids(token, "xcomp"):
                target = oblique.noun or self.antecedent[at]
        return self._event(pred, lemma, subject, target, oblique, self._is_negated(token), "v")

    def _only_helps(self, token: Token) -> bool:
        """Return whether the verb acts as an auxiliary: going to, used to, have to."""
        bare = not self.passive[token.index] and self.object[token.index] is None
        infinitive = any(self._is_infinitive(child) for child in self.kids(token, "xcomp"))
        return token.form.lower() in english.HELPERS and bare and infinitive

    def noun_event(self, token: Token) -> Event | None:
        """Return the event of an eventive noun: a listed one, or a nominalisation with agent and object."""
        if not english.is_common_noun(token) or self.label(token) in ("compound", "flat", "fixed", "case", "nmod:desc"):
            return None
        lemma = (token.lemma or token.form).lower()
        listed = lemma in english.EVENTIVE_NOUNS or (
            not token.lemma and lemma.removesuffix("s") in english.EVENTIVE_NOUNS
        )
        if not listed and not lemma.endswith(english.NOMINAL_SUFFIXES):
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
        return self._event(english.joined([token.form]), english.joined([lemma]), subject, target, other, negated, "n")

    def _light_verb_subject(self, token: Token) -> Token | None:
        """Return the agent of a noun that is the object of a light verb: "she made an announcement"."""
        verb = self.governor(token)
        if verb is None or self.label(token) != "obj" or verb.index not in self.verbs:
            return None
        particles = [particle.form for particle in self.kids(verb, "compound:prt")]
        light = english.joined([verb.lemma, *particles]) in english.LIGHT_VERBS and not self.passive[verb.index]
        return self.subject[verb.index] if light else None

    def _is_negated(self, token: Token) -> bool:
        if any(child.form.lower() in english.NEGATIONS for child in self.kids(token, "advmod", "neg", "aux")):
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
            target = None  # one word in both slots is a parser error
        event = Event(pred, self._word(subject), self._word(target), oblique.preposition if oblique else None)
        event.lemma = lemma if lemma != pred else None
        event.pos, event.extra = pos, {"negated": True} if negated else None
        return event

    def _word(self, token: Token | None) -> str | None:
        if token is None:
            return None
        # UD heads a name by its first word; texts refer to a person by the last
        at = token.index
        for part in self.kids(token, "flat") if english.is_proper(token) else ():
            if part.index == at + 1 and english.is_proper(part):
                at += 1
                token = token if part.form.lower() in english.AFTER_SURNAMES else part
        return english.joined([(self.words == "lemma" and token.lemma) or token.form])


def _dated(oblique: Oblique) -> bool:
    """Return whether an oblique is a date or a number rather than a participant."""
    noun = oblique.noun
    if noun is None:
        return False
    return noun.upos == "NUM" or noun.tag == "CD" or (noun.lemma or noun.form).lower() in english.DATES


def _foremost(obliques: list[Oblique], at: int) -> Oblique | None:
    """Return the main oblique: participants before dates, following ones before preceding ones, then the first."""
    return min(obliques, key=lambda oblique: (_dated(oblique), oblique.at < at, oblique.at), default=None)
