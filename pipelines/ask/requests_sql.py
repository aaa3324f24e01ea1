"""SQL about requests that questions and checks share. It works in DuckDB and, through sqlglot, in Spark."""

from jbod_model.formats.kafka_errors import KafkaError

_PAIRS = ", ".join(f"({error.value}, '{error.name}')" for error in KafkaError)

ERROR_NAMES = f"SELECT * FROM (VALUES {_PAIRS}) AS names (error, name)"
"""SQL: Kafka's name of each error code that a controller answers with."""

PROCESSES = """
    SELECT b.broker_id, min(h.from_offset) AS from_offset, min(h.from_time) AS from_time,
           max(CASE WHEN h.fenced THEN h.to_offset END) AS unfenced_offset,
           max(CASE WHEN h.fenced THEN h.to_time END) AS unfenced_time
    FROM brokers b
    JOIN brokers_history h ON h.broker_id = b.broker_id AND h.incarnation_id = b.incarnation_id
    GROUP BY b.broker_id
"""
"""SQL over brokers and brokers_history: for each registered broker, since when its process runs, and when it was last
unfenced (null: it was never fenced in this history)."""

LAST_ASKED = """
    SELECT q.topic_id, q.topic, q.partition, q.broker_id, q.directory_id, q.requested_time, q.first_requested_time,
           q.attempt, q.realised_offset,
           CASE WHEN q.error <> 0 THEN coalesce(n.name, 'error ' || CAST(q.error AS VARCHAR)) END AS refusal
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY topic_id, partition, broker_id ORDER BY requested_time DESC, answered_time DESC, entry DESC
        ) AS age
        FROM assignment_requests
    ) q
    LEFT JOIN error_names n ON n.error = q.error
    WHERE q.age = 1
"""
"""SQL over assignment_requests and error_names: a broker's last request for each replica, and Kafka's name of the error
(null if it was accepted)."""

# A process that has ended does not repeat requests.
RETRY_LOOPS = """
    SELECT q.topic_id, q.topic, q.partition, q.broker_id, q.directory_id, q.refusal, q.attempt, q.first_requested_time,
           q.requested_time, r.from_offset, r.from_time
    FROM last_asked q
    JOIN processes r ON r.broker_id = q.broker_id AND r.from_time <= q.requested_time
    CROSS JOIN params
    WHERE q.refusal IS NOT NULL AND q.attempt >= params.refusals AND q.requested_time >= params.window_time
"""
"""SQL over last_asked, processes and params (refusals, window_time): assignments that are refused repeatedly."""
