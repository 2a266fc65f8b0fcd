"""Words by which environments refuse a call, per kind of refusal; in lower case, without quotes.

Each expression is linear in the text: repetitions are bounded.
"""

from __future__ import annotations

import re


def any_of(*alternatives: str) -> re.Pattern[str]:
    """Return an expression that matches any of these."""
    return re.compile("|".join(alternatives))


_ROLE = (
    r"(?:"
    r"the|an?|its|admins?|members?|owners?|moderators?|managers?|staff|hosts?|organi[sz]ers?|"
    r"users?|maintainers?|editors?|authors?|assignees?|accounts?"
    r")"
)

_ARGUMENT_WORD = (
    r"(?:"
    r"arguments?|args?|parameters?|params?|fields?|propert(?:y|ies)|keys?|keywords?|inputs?|"
    r"options?|attributes?|kwargs?|columns?"
    r")"
)

_TYPE = (
    r"(?:"
    r"integers?|int|numbers?|numeric|strings?|str|text|booleans?|bool|floats?|lists?|arrays?|"
    r"objects?|dicts?|dates?|datetime|iso|uuids?|urls?|emails?|timestamps?|positive|"
    r"nonnegative|non negative|non empty|whole|enum|null|decimal"
    r")"
)

UNKNOWN_TOOL = any_of(
    r"\b(?:unknown|no such|no|undefined|unsupported|invalid) (?:tool|function|method|action)\b",
    (
        r"\b(?:tool|function|method) (?:\S+ ){0,2}(?:not found|does not exist|"
        r"is not (?:available|known|defined))"
    ),
    r"-?32601\b",
    r"method not found",
)


AUTHORIZATION = any_of(
    r"un ?authori[sz]ed",
    r"unauthenticated",
    r"forbidden",
    r"(?:permission|access) (?:is |was )?(?:denied|refused)",
    r"(?:status|code|http|error)[ :/]{0,3}40[13]\b",
    r"^\W{0,3}40[13]\b",
    r"\b40[13] client error",
    r"\bnot (?:authori[sz]ed|permitted|entitled)\b",
    r"\bnot allowed (?:to|for)\b",
    (
        r"(?:insufficient|lacks?|lacking|missing|without|no|needs?|requires?|"
        r"required) (?:\S+ ){0,4}(?:permissions?|privileges?|scopes?|rights?|role|"
        r"authori[sz]ation|clearance)\b"
    ),
    (
        r"(?:do|does|did)(?:n't| not) have (?:\S+ ){0,3}(?:permissions?|access|rights?|"
        r"privileges?|role)"
    ),
    r"you (?:have no|lack) (?:\S+ ){0,2}(?:permissions?|access|rights?)",
    (
        r"(?:permissions?|privileges?|scopes?|role) (?:\S+ ){0,3}(?:required|needed|missing|"
        r"insufficient)"
    ),
    (
        r"(?:requires?|needs?) (?:\S+ ){0,3}(?:login|sign in|authentication|admin\w{0,10}|"
        r"owner\w{0,5})\b"
    ),
    r"authenticat\w{1,6} (?:\S+ ){0,2}(?:failed|required|error)",
    r"(?:login|log in|sign in) (?:is )?required",
    r"not (?:logged|signed) in",
    (
        r"(?:session|token|credentials?|key|login) (?:has |have |is |was )?(?:expired|invalid|"
        r"revoked|rejected|refused|missing|not valid|incorrect|not accepted)"
    ),
    (
        r"(?:invalid|expired|revoked|missing|bad|wrong|no valid|"
        r"incorrect) (?:\S+ ){0,2}(?:api key|access key|access token|bearer token|auth token|"
        r"token|credentials?|password|session|signature)\b"
    ),
    (
        rf"\bonly {_ROLE} (?:\S+ ){{0,5}}(?:can|may|is allowed|are allowed|is permitted|"
        rf"are permitted)\b"
    ),
    r"\b(?:must|have to|need to) be (?:logged|signed) in",
    (
        r"\b(?:must|have to|need to) be (?:an? |the )?(?:\S+ )?(?:admin\w{0,10}|owner|member|"
        r"moderator|manager|assignee|author|organi[sz]er|host|collaborator|maintainer)\b"
    ),
    r"\b(?:is|are) not (?:your|yours)\b",
    r"\bnot your \w",
    (
        r"\bnot (?:the|an?) (?:\S+ )?(?:owner|member|admin\w{0,10}|author|assignee|moderator|"
        r"organi[sz]er|collaborator|maintainer)\b"
    ),
    r"belongs? to (?:another|someone|somebody|a different|other)",
    r"owned by (?:another|someone|somebody)",
    r"another (?:user|member|account|person|customer|guest)'s",
    r"someone else's",
    r"somebody else's",
    r"\bnot (?:within|in) your (?:scope|rights|organi[sz]ation|workspace|team)",
    r"\bnot authed\b",
    r"\bnot accessible\b",
    r"(?:please |first )(?:log|sign) in\b",
    r"\b(?:log|sign) in (?:first|again|to)\b",
    (
        r"(?:token|role|plan|account|scope|permissions?|policy|session|key) does(?:n't|"
        r" not) (?:allow|permit|grant|include|cover)"
    ),
    r"\bread only (?:account|access|mode|user|token|session|role|key)",
    r"account is read only",
    r"access (?:is )?(?:restricted|limited|forbidden|blocked|not granted)",
    r"(?:may|can)not (?:access|view|see) (?:this|that|the)",
    r"no access\b",
    r"out of scope for",
)


NOT_FOUND = any_of(
    r"\bnot found\b",
    r"\bnotfound\b",
    r"\bno such\b",
    r"\bnone such\b",
    r"\b(?:does|do|did|could)(?:n't| not) exist",
    r"\b(?:no longer|never) exist",
    r"non ?existent",
    r"\bnonexist",
    r"\b(?:status|code|http|error)[ :/]{0,3}4(?:04|10)\b",
    r"^\W{0,3}4(?:04|10)\b",
    r"\b404 client error",
    (
        rf"\bunknown (?!error|reason|cause|fault|problem|failure|exception|state|value|"
        rf"{_ARGUMENT_WORD}\b)(?:\w+ ){{0,3}}\w"
    ),
    (
        r"\b(?:can|could|did)(?:not| not|n't) (?:be )?(?:find|found|locate[d]?|resolve[d]?|"
        r"look(?:ed)? up)"
    ),
    r"\b(?:unable|failed) to (?:find|locate|resolve|look up|fetch)",
    r"\bthere (?:is|was|are|were|'s) no\b",
    r"\bthere's no\b",
    (
        r"\b(?:is|are) not (?:there|known|registered|on file|listed|in the (?:system|database|"
        r"records?))\b"
    ),
    (
        r"\bno (?:\S+ ){1,4}(?:with|by|under|named|called|has|have|having|exists?|was found|"
        r"were found|found|matching|for|at|of that)\b"
    ),
    r"\b(?:has|have) been (?:deleted|removed)",
    r"\b(?:was|were) (?:deleted|removed)",
    r"\bmissing (?:record|resource|entity|object|row)",
    r"\bresource missing",
    r"\b(?:record|row|entity|object|resource) (?:\S+ ){0,2}(?:missing|absent|unavailable)",
    r"\bno (?:\w+ ){0,2}…",
    r"\bno (?:record|entry|trace|row|match|results?) (?:of|for|in|with)",
    r"\bnothing (?:is |was )?(?:found|stored|here|there|known|by|under|at|with)",
    r"\bgone\b",
    r"\binvalid reference",
    r"\b(?:unrecogni[sz]ed) (?:id|identifier)",
    (
        r"\bno (?:hotel|issue|order|event|contact|deal|post|ticket|hold|booking|listing|mail|"
        r"message|user|repo\w{0,6}|company|customer|account|item|file|folder|document|project|"
        r"task|home|fan|rider|flight|room|label|member|thread|comment|offer|visit|story|epic|"
        r"sprint|board|page|entry|record|property|reservation|restaurant|invoice)s? \S"
    ),
)


ARGUMENTS = any_of(
    rf"missing (?:\S+ ){{0,4}}{_ARGUMENT_WORD}\b",
    rf"(?:required|mandatory) (?:\S+ ){{0,2}}{_ARGUMENT_WORD}\b",
    (
        rf"\b{_ARGUMENT_WORD} (?:\S+ ){{0,3}}(?:is|are|was|were) (?:missing|required|mandatory|"
        rf"not (?:allowed|permitted|expected|recogni[sz]ed|supported|valid)|unknown|invalid|"
        rf"unexpected)"
    ),
    rf"\b{_ARGUMENT_WORD} required\b",
    r"is a required\b",
    r"… (?:is|are) (?:required|missing)\b",
    r"\bis required\b",
    r"\brequired but (?:\S+ ){0,2}(?:missing|not|absent)",
    r"\bmissing: ",
    r"\bvalue[. ]error\b",
    (
        rf"(?:unknown|unexpected|unrecogni[sz]ed|unsupported|extra|extraneous|undefined|illegal|"
        rf"no such|bad|wrong) (?:\S+ )?{_ARGUMENT_WORD}\b"
    ),
    r"additional propert",
    r"extra (?:inputs?|values?) (?:are )?not",
    rf"\b(?:must|should|has to|needs to|ought to|expected to) be (?:\S+ )?{_TYPE}\b",
    (
        r"\b(?:must|should|has to|needs to) be (?:one of|of type|at least|at most|between|"
        r"in (?:the )?(?:format|range|form)|greater|less|larger|smaller|lower|higher|above|below|"
        r"no (?:more|less|longer)|shorter|longer|like|valid|a valid|\d|an? (?:multiple|value)|"
        r"formatted|given|provided|set|specified|up to|within)"
    ),
    (
        r"\b(?:must|should|cannot|can't|may not|can not) (?:not )?(?:be (?:empty|blank|null|"
        r"negative|zero|omitted)|match|contain|have (?:at|a|the form)|exceed|include)\b"
    ),
    rf"expected (?:\S+ ){{0,3}}{_TYPE}",
    r"expected (?:\S+ ){1,6}(?:got|but|received|given)\b",
    r"expects? (?:an?|\d)",
    (
        rf"\bis not (?:of type|one of|an? (?:valid )?{_TYPE}|a valid|valid|among|in the (?:list|"
        rf"enum|range|allowed)|allowed here|accepted|supported)"
    ),
    rf"\bnot an? (?:valid )?{_TYPE}\b",
    r"\bnot of type\b",
    r"\bnot valid (?:for|under|as)\b",
    r"invalid (?!state|status|transition|operation|move|session)\w",
    r"\bvalidation (?:error|failed|failure|problem)",
    r"validation[. ]error",
    r"schema (?:validation|violation|mismatch)",
    r"does not (?:match|conform|satisfy|fit)",
    r"doesn't (?:match|conform|satisfy|fit)",
    r"(?:could|can|did)(?:not| not|n't) (?:be )?(?:parsed?|read as|convert|coerce|decode)",
    r"(?:failed|unable) to (?:parse|decode|convert)",
    r"malformed",
    r"ill formed",
    r"badly (?:formatted|formed|written)",
    r"not valid json",
    r"wrong (?:type|format)",
    r"type (?:error|mismatch)",
    r"incorrect (?:type|format)",
    r"out of (?:the )?(?:range|bounds)",
    r"outside (?:of )?(?:the )?(?:\S+ )?(?:range|limits?|bounds)",
    r"exceeds? (?:the )?(?:\S+ )?(?:max\w{0,4}|limit|length)",
    (
        r"\b(?:is|are|was|were|value|text) too (?:long|short|large|small|big|high|low|"
        r"many (?:characters|items|elements|values))\b"
    ),
    r"\b(?:maximum|minimum|max|min)(?: (?:is|allowed|length|value|of))? ?[:=]? ?\d",
    r"(?:greater|less|more|fewer|larger|smaller) than (?:or equal|\d)",
    r"\bat (?:least|most) \d",
    r"(?:status|code|http|error)[ :/]{0,3}4(?:00|22)\b",
    r"^\W{0,3}4(?:00|22)\b",
    r"bad request",
    r"unprocessable",
    r"-?32602\b",
    r"takes (?:no|exactly|\d|from \d)(?:\S+ ){0,4}",
    r"got an unexpected",
    r"(?:allowed|valid|permitted|accepted|possible) (?:values|options|choices|formats?)",
    r"input should be",
    r"choose (?:one )?(?:from|of|between)",
    r"\bone of[: ]",
    r"use one of",
    r"\bnone of the (?:fields|arguments|parameters|options|values)",
    r"\b(?:may|can|must) ?not be left out",
    r"\bgive \S+ as\b",
    r"\bnot valid\b",
    r"not a recogni[sz]ed",
    r"no default",
    r"unknown argument",
    r"invalid$",
)
