-- A sessions file of version 1, as that version wrote it.
PRAGMA application_id = 1836347500;
PRAGMA user_version = 1;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    updated REAL NOT NULL
);
CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (session, place)
);
CREATE TABLE turns (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    model TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    sampler TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    stop_origin TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    shared INTEGER NOT NULL,
    ids BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (session, turn)
);
INSERT INTO sessions VALUES (1, 'rivers', 1760000000.0, 1760000060.0);
INSERT INTO messages VALUES (1, 0, 1, 'system', 'Be brief.');
INSERT INTO messages VALUES (1, 1, 1, 'user', 'Name a river.');
INSERT INTO messages VALUES (1, 2, 1, 'assistant', 'The Rhine.');
INSERT INTO messages VALUES (1, 3, 2, 'user', 'Another?');
INSERT INTO messages VALUES (1, 4, 2, 'assistant', 'The Elbe.');
INSERT INTO turns VALUES (1, 1, 'smollm2-135m', '', '{"temperature": 0.0}', 'stop', 'eos', 3, 0, 0, x'010000000b0000000c000000150000001600000002000000', 1760000000.0);
INSERT INTO turns VALUES (1, 2, 'smollm2-135m', '', '{"temperature": 0.0}', 'stop', 'eos', 7, 6, 6, x'0d0000001f0000002000000002000000', 1760000060.0);
