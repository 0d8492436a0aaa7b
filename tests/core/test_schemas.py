"""Words of the registry: the subject of a topic that names none."""

from penstock.core.names import TopicName
from penstock.core.schemas import default_subject, is_subject


def test_a_topics_own_subject_bears_its_name() -> None:
    assert default_subject(TopicName.parse("orders.created")) == "orders.created-value"
    assert default_subject(TopicName.parse("/shop/orders")) == "shop/orders-value"


def test_no_two_topics_share_a_subject_of_their_own() -> None:
    names = ["/team/events", "/default/team.events", "/default/events", "/team/a.events", "/team-a/events"]
    subjects = {default_subject(TopicName.parse(each)) for each in names}
    assert len(subjects) == len(names)
    assert all(map(is_subject, subjects))
