end
$create_tables$;
