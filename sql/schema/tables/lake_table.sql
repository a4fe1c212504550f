create table if not exists oml.lake_table (
  name text not null,
  generation int not null default 1,
  location text not null,
  created_at timestamptz not null default pg_catalog.clock_timestamp(),
  constraint lake_table_pkey primary key (name),
  constraint lake_table_generation_check check (generation > 0)
);
comment on table oml.lake_table is 'Where each lake table lives. A table named here exists: the lake writer never makes it anew.';
comment on column oml.lake_table.name is 'Table name, for example bronze.events.';
comment on column oml.lake_table.generation is 'Lake generation; a redrain builds the next one beside it.';
comment on column oml.lake_table.location is 'Location relative to the lake''s URL.';
comment on column oml.lake_table.created_at is 'When the row was made.';
