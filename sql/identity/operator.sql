-- As whom the caller operates the deployment, and what allows it. Deployment acts and impersonations are
-- signed with it.
create function oml.operator(out principal text, out auth text)
returns record
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  acting_as text;
  principals text[];
begin
  if (select r.rolsuper from pg_roles r where r.rolname = session_user) then
    principal := session_user;
    auth := 'superuser';
    return;
  end if;
  -- Who impersonates operates the deployment as itself, not as the other.
  if current_setting('oml.transaction', true) = oml.transaction_mark() and current_setting('oml.impersonation', true) = '' then
    acting_as := nullif(current_setting('oml.principal', true), '');
  end if;
  select array_agg(m.principal) into principals
  from oml.membership m
  where m.login = session_user and m.tenant = 'provider' and 'operate' = any (m.permissions)
    and (acting_as is null or m.principal = acting_as);
  if cardinality(principals) is distinct from 1 then
    perform oml.refuse_caller('provider', acting_as, '{operate}');
  end if;
  principal := principals[1];
  auth := 'membership:operate';
end
$$;
