// Prints the SQL with which a version of pg-boss makes its tables; newer ones run on a newer Node.js than tests may have.
const library = await import(`pg-boss-${process.argv[2]}`);
console.log((library.getConstructionPlans ? library : library.default).getConstructionPlans("pgboss"));
