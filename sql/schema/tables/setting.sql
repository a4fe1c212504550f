create table if not exists oml.setting (
  name text not null,
  value text not null,
  constraint setting_pkey primary key (name)
);
comment on table oml.setting is 'Deployment settings. A table and not GUCs, because any session can set a custom GUC.';
comment on column oml.setting.name is 'Setting name; see oml_configure().';
comment on column oml.setting.value is 'Setting value as text.';
